"""The paper claim by claim, beside what results hold: `docs/paper.md`."""
