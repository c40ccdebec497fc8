"""Scripts: a case's schedule as Python statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness import case as c
from harness.script_graph import uses
from harness.script_modules import recipe
from harness.script_results import CPU_STATE, PARAMETERS, Kept, Results
from harness.script_schedule import Outline, fails, first_of_the_last_backwards, runs
from harness.script_text import call, indented, number

if TYPE_CHECKING:
    from harness.script_graph import GraphWriter, Place
    from harness.script_model import ModelWriter
    from harness.script_regions import Regions


class _Pending(msgspec.Struct, frozen=True):
    """A forward whose backward is still to come, and the names of its input and output."""

    iteration: int
    x: str
    out: str


class StepsWriter:
    """Writes the steps of a script's run, and the functions that they call."""

    def __init__(
        self, case: c.Case, model: ModelWriter, root: Place, graph: GraphWriter, regions: Regions, kept: Kept
    ) -> None:
        self.outline = Outline(case.schedule)
        self.results = Results(kept, model)
        self._case = case
        self._model = model
        self._root = root
        self._graph = graph
        self._regions = regions
        self._kept = kept
        self._outputs = "output" in kept.quantities
        named = [self.outline.named(at, outputs=self._outputs) for at in range(len(case.schedule))]
        self._alone = sum(named) == 1
        """Whether only one forward's tensors have names."""
        self._clears = "parameter gradient" in kept.quantities or self.outline.learns
        self._iteration = 0
        self._pending: list[_Pending] = []
        self._learned = False
        self._grads = 0

    def write(self) -> tuple[list[list[str]], list[str]]:
        """Return the functions that the steps call, and the steps; the last returns what was kept, if any."""
        steps, _ = self._write_steps(0)
        self.results.finish(steps)
        return self._functions(), steps

    @property
    def draws_apart(self) -> bool:
        """Whether something else moves the state of the CPU's generator."""
        leaves = c.modules(self._case)
        host = any(isinstance(leaf, c.TorchDropout) and leaf.on_cpu for leaf in leaves)
        return host or self.outline.draws_after_failing or self._kept.random == CPU_STATE

    # --- Functions ---

    def _functions(self) -> list[list[str]]:
        blocks: list[list[str]] = []
        if self._regions.interrupts:
            blocks.append(["def interrupt(*_):", "    if failing:", "        raise InterruptedError"])
        forward = [] if self.outline.inline else self._forward_function()
        step = self._pair_function() if self.outline.pairs else []
        if not self.outline.told:
            blocks += self._regions.functions.values()
        return [*blocks, *(block for block in (forward, step) if block)]

    def _forward_function(self) -> list[str]:
        fresh = self._graph.scope()
        body = self._through("x", "return ", spare=True)
        self._graph.leave(fresh)
        if self.outline.told:
            own = [line for function in self._regions.functions.values() for line in (*function, "")]
            return ["def forward(x, first=None):", *indented([*own, *body])]
        return ["def forward(x):", *indented(body)]

    def _through(self, x: str, to: str, *, spare: bool = False) -> list[str]:
        """Return the lines that lead a tensor through the graph."""
        lines: list[str] = []
        if self._case.torch_autocast and uses(self._root) > 1:
            # torch's autocast casts a leaf once for all that use it.
            view = x if spare else self._graph.fresh()
            lines.append(f"{view} = {x}.view_as({x})")
            x = view
        through = self._graph.write(self._root, x, to, spare=spare)
        if self._case.torch_autocast:
            through = ['with torch.autocast("cuda", torch.bfloat16):', *indented(through)]
        return [*lines, *through]

    def _pair_function(self) -> list[str]:
        """Return the function ``step``, which does a forward and its backward."""
        varying = self.outline.varying()
        forward, backward = self.outline.pair(self.outline.pairs[0])
        lines = [f"{self._model.name}.zero_grad()"] if self._clears else []
        lines.append(
            f"x = {self._input('size' if 'size' in varying else number(forward.magnitude), learned=True)}"
        )
        if self.outline.inline:
            lines += self._through("x", "out = ")
        else:
            lines.append(f"out = {call('forward', 'x', 'first' if self.outline.told else '')}")
        size = "gradient_size" if "gradient_size" in varying else number(backward.magnitude)
        results = Results(msgspec.structs.replace(self._kept, since=0), self._model)
        if self._outputs:
            results.add("out")
        lines += self._backwards([_Pending(0, "x", "out")], backward, size, results)
        results.finish(lines)
        parameters = ["first=None" if name == "first" else name for name in varying]
        return [f"def step({', '.join(parameters)}):", *indented(lines)]

    # --- Steps ---

    def _write_steps(self, start: int) -> tuple[list[str], int]:
        """Return the lines of the steps up to the end of the autocast that they are in, and where that is."""
        lines: list[str] = []
        at = start
        while at < len(self._case.schedule):
            step = self._case.schedule[at]
            if isinstance(step, c.CloseAutocast):
                return lines, at + 1
            if isinstance(step, c.OpenAutocast):
                inner, at = self._write_steps(at + 1)
                lines += [f"with {self._graph.autocast()}:", *indented(inner or ["pass"])]
            elif at in self.outline.pairs:
                self._pair(at, lines)
                at += 2
            else:
                self._write_step(step, at, lines)
                at += 1
        return lines, at

    def _write_step(self, step: c.Step, at: int, lines: list[str]) -> None:
        match step:
            case c.Forward():
                self._forward(step, at, lines)
            case c.Backward():
                self._backward(step, at, lines)
            case c.Abandon():
                self._abandon(step, lines)
            case c.Evaluate():
                self._evaluate(step, lines)
            case c.SetRecipe():
                lines.append(f"recipe = {recipe(step.recipe)}")
            case _:
                if isinstance(step, c.DeepCopy):
                    # The gradients are the old parameters'.
                    self.results.flush(lines)
                lines += self._model.changed(step, saved=self.outline.saves)

    def _pair(self, at: int, lines: list[str]) -> None:
        forward, backward = self.outline.pair(at)
        values = {
            "size": number(forward.magnitude),
            "gradient_size": number(backward.magnitude),
            "first": str(forward.first_microbatch),
        }
        called = call("step", *(values[name] for name in self.outline.varying()))
        if self._learned and self._clears:
            self.results.flush(lines)
        self.results.add_call(called, self._iteration, lines, last=at in self.outline.tail)
        self._learned = True
        self._iteration += 1

    def _forward(self, step: c.Forward, at: int, lines: list[str]) -> None:
        self._clear(lines)
        iteration = self._iteration
        self._iteration += 1
        digit = "" if self._alone else str(iteration + 1)
        x, out = f"x{digit}", f"out{digit}"
        first = "" if step.first_microbatch is None else f"first={step.first_microbatch}"
        drawn = self._input(number(step.magnitude), learned=True)
        if step.fails is not None:
            lines += self._interrupted([call("forward", drawn, first)], at)
        elif not self.outline.named(at, outputs=self._outputs):
            self._pending.append(_Pending(iteration, x, ""))
            lines.append(f"{call('forward', drawn, first)}  # its backward never comes")
        else:
            self._pending.append(_Pending(iteration, x, out))
            lines.append(f"{x} = {drawn}")
            through = self._through(x, f"{out} = ") if self.outline.inline else []
            lines += through or [f"{out} = {call('forward', x, first)}"]
            if self._kept.wants("output", iteration):
                self.results.add(out)

    def _clear(self, lines: list[str]) -> None:
        """Clear the gradients, with which a forward begins, where there may be any."""
        if self._learned and self._clears:
            self.results.flush(lines)
            lines.append(f"{self._model.name}.zero_grad()")
            self._learned = False

    def _backward(self, step: c.Backward, at: int, lines: list[str]) -> None:
        if self._kept.random and at == first_of_the_last_backwards(self._case.schedule):
            lines.append(f"before = {self._kept.random}")
        going = self._pending[step.which : step.which + step.losses]
        if not step.retain:
            del self._pending[step.which : step.which + step.losses]
        self._learned = True
        results = Results(Kept(), self._model) if fails(step) else self.results
        written = self._backwards(going, step, number(step.magnitude), results)
        lines += self._interrupted(written, at) if fails(step) else written

    def _backwards(self, going: list[_Pending], step: c.Backward, size: str, results: Results) -> list[str]:
        """Return the lines of a backward of these forwards, and keep what is wanted of it."""
        losses = " + ".join(forward.out for forward in going)
        loss = losses if len(going) == 1 else f"({losses})"
        drawn = f"{self._normal(size)}.to({going[0].out})"
        retaining = "retain_graph=True" if step.retain else ""
        if step.way == "grad":
            return self._by_grad(going, loss, drawn, retaining, results)
        for forward in going:
            if self._case.input_requires_grad and results.kept.wants("input gradient", forward.iteration):
                results.add(f"{forward.x}.grad")
        if results.kept.wants("parameter gradient", going[0].iteration):
            results.add_all(PARAMETERS)
        return [call(f"{loss}.backward", drawn, retaining)]

    def _by_grad(
        self, going: list[_Pending], loss: str, drawn: str, retaining: str, results: Results
    ) -> list[str]:
        wanted = [forward.x for forward in going if self._case.input_requires_grad]
        if self._model.learning():
            some = " if p.requires_grad" if self._model.some_frozen() else ""
            wanted.append(f"*(p for p in {self._model.name}.parameters(){some})")
        called = call(
            "torch.autograd.grad", loss, f"[{', '.join(wanted)}]", drawn, retaining, "allow_unused=True"
        )
        if not results.kept.quantities & {"input gradient", "parameter gradient"}:
            return [called]
        self._grads += 1
        found = "found" if self._grads == 1 else f"found{self._grads}"
        results.add_all(f'*(("gradient", gradient) for gradient in {found} if gradient is not None)')
        return [f"{found} = {called}"]

    def _abandon(self, step: c.Abandon, lines: list[str]) -> None:
        out = self._pending.pop(step.which).out
        if out:
            drop = f"{out} = {out}.detach()" if self._outputs else f"del {out}"
            lines.append(f"{drop}  # its backward never comes")

    def _evaluate(self, step: c.Evaluate, lines: list[str]) -> None:
        name = f"evaluated{self._iteration + 1}"
        keeps = self._kept.wants("output", self._iteration)
        self._iteration += 1
        to = f"{name} = " if keeps else ""
        drawn = self._input(number(step.magnitude))
        through = [f"x = {drawn}", *self._through("x", to)] if self.outline.inline else []
        lines += [f"with torch.{step.mode}():", *indented(through or [f"{to}forward({drawn})"])]
        if keeps:
            self.results.add(name)

    def _interrupted(self, lines: list[str], at: int) -> list[str]:
        """Return the lines of a step in which a region raises, which the training loop outlives."""
        suppressing = "with contextlib.suppress(InterruptedError):"
        goes_on = any(map(runs, self._case.schedule[at + 1 :]))
        return ["failing = True", suppressing, *indented(lines), *["failing = False"] * goes_on]

    # --- Tensors ---

    def _normal(self, size: str) -> str:
        """Return a draw on the CPU, so that it is the same everywhere."""
        drawn = f"torch.randn({self._graph.shape}{', generator=generator' if self.draws_apart else ''})"
        return drawn if size == "1" else f"({size} * {drawn})"

    def _input(self, size: str, *, learned: bool = False) -> str:
        half = self._case.dtype == "bfloat16"
        drawn = self._normal(size) + ('.to("cuda", torch.bfloat16)' if half else ".cuda()")
        return drawn + ".requires_grad_()" if learned and self._case.input_requires_grad else drawn
