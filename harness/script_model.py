"""Scripts: the modules of a case, one by one and together, and what is done to them between forwards."""

from __future__ import annotations

from typing import Final

from harness import case as c
from harness.script_modules import constructions, variables
from harness.script_text import listed

_LEARNING_RATE: Final = 0.125
_BARE: Final = (c.TorchGELU, c.TorchDropout)
"""Modules without parameters."""
_WITH_EXTRA_STATE: Final = (c.Linear, c.LayerNormLinear, c.LayerNormMLP, c.GroupedLinear)
"""Modules that have one themselves, rather than modules in them."""


class ModelWriter:
    """Writes how the modules are made and changed; ``names`` are those of their variables."""

    def __init__(self, case: c.Case) -> None:
        self.names = variables(case)
        self._case = case
        self._leaves = c.modules(case)
        self._named = False

    @property
    def name(self) -> str:
        """The name of all modules together, which is given to them if it is asked for."""
        self._named = True
        return self.names[0] if len(self.names) == 1 else "model"

    def made(self, recompute: str) -> list[str]:
        """Return the lines that make the modules; to be asked for last."""
        lines = constructions(self._case, self.names, recompute)
        if self._named and len(self.names) > 1:
            entries = ", ".join(f'"{name}": {name}' for name in self.names)
            lines.append(f"model = torch.nn.ModuleDict({{{entries}}})")
        return lines

    def some_frozen(self) -> bool:
        """Tell whether there are frozen modules."""
        return any(leaf.frozen for leaf in self._leaves)

    def learning(self) -> bool:
        """Tell whether any parameter is not frozen."""
        return any(not leaf.frozen and not isinstance(leaf, _BARE) for leaf in self._leaves)

    def changed(self, step: c.Step, *, saved: bool) -> list[str]:
        """Return the lines of a step that changes modules; ``saved``: a state is saved at some time."""
        match step:
            case c.SetMode():
                return [f"{self.names[step.module]}.{'train' if step.training else 'eval'}()"]
            case c.OptimizerStep() if not self.learning():
                return []
            case c.OptimizerStep():
                return [f"torch.optim.SGD({self.name}.parameters(), lr={_LEARNING_RATE}).step()"]
            case c.SaveState():
                return [f"saved = copy.deepcopy({self.name}.state_dict())"]
            case c.LoadState() if step.extra:
                return self._load_extra(saved=saved)
            case c.DeepCopy() if step.beside:
                return self._copied_beside()
            case c.LoadState():
                state = "saved" if saved else f"copy.deepcopy({self.name}.state_dict())"
                return [f"{self.name}.load_state_dict({state})"]
            case _:
                return self._copied()

    def _copied(self) -> list[str]:
        lines = [f"{self.name} = copy.deepcopy({self.name})"]
        return lines if len(self.names) == 1 else [*lines, f"{listed(self.names)} = {self.name}.values()"]

    def _copied_beside(self) -> list[str]:
        copies = zip(self.names[len(self._leaves) :], c.twins(self._case), strict=True)
        return [
            f'{self.name}["{name}"] = {name} = copy.deepcopy({self.names[twin.module]})'
            for name, twin in copies
        ]

    def _load_extra(self, *, saved: bool) -> list[str]:
        if len(self.names) == 1 and isinstance(self._leaves[0], _WITH_EXTRA_STATE) and not saved:
            return [f"{self.name}.set_extra_state({self.name}.get_extra_state())"]
        own = 'saved[f"{name}._extra_state" if name else "_extra_state"]'
        state = own if saved else "module.get_extra_state()"
        modules = (
            f"name, module in {self.name}.named_modules()" if saved else f"module in {self.name}.modules()"
        )
        return [
            f"for {modules}:",
            '    if hasattr(module, "fp8_meta"):',
            f"        module.set_extra_state({state})",
        ]
