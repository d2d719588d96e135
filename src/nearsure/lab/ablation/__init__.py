"""The ablation: every rule and form with every calibrator, on the same splits."""
