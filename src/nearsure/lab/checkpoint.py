"""Where a training run stands, in one safetensors file that is written whole."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from nearsure.errors import NearsureError
from nearsure.whole_files import written_whole


@dataclass(frozen=True)
class TrainingState:
    """All that changes while a run trains.

    Parameters
    ----------
    modules : dict of nn.Module
        Embedder and loss.
    optimizer : torch.optim.Optimizer
        With its moments.
    """

    modules: dict[str, nn.Module]
    optimizer: torch.optim.Optimizer

    def save(self, path: Path, *, step: int, history: list[float]) -> None:
        """Write the state after `step` steps and the losses so far."""
        tensors: dict[str, Tensor] = {"history": torch.tensor(history, dtype=torch.float64)}
        for name, module in self.modules.items():
            for key, tensor in module.state_dict().items():
                tensors[f"{name}/{key}"] = tensor
        for index, moments in self.optimizer.state_dict()["state"].items():
            for key, tensor in moments.items():
                tensors[f"optimizer/{index}/{key}"] = tensor
        # Weights in channels-last order are stored in plain order, which safetensors wants.
        plain = {key: tensor.detach().clone().contiguous() for key, tensor in tensors.items()}
        with written_whole(path, keep_suffix=True) as draft:
            save_file(plain, draft, metadata={"step": str(step)})

    def load(self, path: Path) -> tuple[int, list[float]]:
        """Take up the state of a file; gives the step and the losses so far."""
        tensors, step = read_tensors(path)
        for name, module in self.modules.items():
            module.load_state_dict(below(tensors, name))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, tensor in below(tensors, "optimizer").items():
            index, _, name = key.partition("/")
            moments.setdefault(int(index), {})[name] = tensor
        state = self.optimizer.state_dict()
        self.optimizer.load_state_dict({**state, "state": moments})
        return step, tensors["history"].tolist()


def read_tensors(path: Path) -> tuple[dict[str, Tensor], int]:
    """All tensors of a checkpoint, and its step."""
    try:
        with safe_open(path, framework="pt") as file:
            step = int((file.metadata() or {})["step"])
            return {key: file.get_tensor(key) for key in file.keys()}, step  # noqa: SIM118
    except (OSError, SafetensorError, KeyError) as error:
        raise NearsureError(
            f"{path} is not a checkpoint ({error}). Delete it and run again; training starts anew."
        ) from error


def below(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors of one module, without its name."""
    return {
        key.removeprefix(f"{name}/"): tensor
        for key, tensor in tensors.items()
        if key.startswith(f"{name}/")
    }
