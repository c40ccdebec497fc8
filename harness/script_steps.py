"""Scripts: a case's schedule as Python statements, and what they keep of each iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness import case as c
from harness.script_modules import recipe
from harness.script_text import call, indented, listed, number
from harness.trace import Quantity
from harness.validity import pending_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.script_graph import GraphWriter, Place
    from harness.script_regions import Regions

_LEARNING_RATE = 0.125
_RETURNING, _COLLECTING = "return {}", "results += {}"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a script keeps to compare: these quantities, from this iteration on.

    ``present`` says that some parameters may have no gradient, and that only those that have one are kept.
    """

    quantities: frozenset[Quantity] = frozenset()
    since: int = 0
    present: bool = False


class _Pending(msgspec.Struct, frozen=True):
    iteration: int
    x: str
    out: str


class StepsWriter:
    """Writes the body of a script's run: modules made before, its functions and its steps."""

    def __init__(
        self, case: c.Case, names: Sequence[str], root: Place, graph: GraphWriter, regions: Regions, kept: Kept
    ) -> None:
        self._case = case
        self._names = names
        self._root = root
        self._graph = graph
        self._regions = regions
        self._kept = kept
        self._steps = case.schedule
        forwards = [step for step in case.schedule if isinstance(step, c.Forward)]
        evaluations = [step for step in case.schedule if isinstance(step, c.Evaluate)]
        self._microbatched = any(step.first_microbatch is not None for step in forwards)
        self._pairs = _pairs(case.schedule)
        """The places of forwards that are followed by their own backward, if there are several."""
        calls = len(forwards) + len(evaluations) - max(len(self._pairs) - 1, 0)
        self._inline = calls == 1 and not self._microbatched and not any(map(_fails, forwards))
        self._kept_outputs = "output" in kept.quantities
        self._alone = sum(self._has_name(at) for at in range(len(self._steps))) == 1
        """Whether one forward alone has names for its tensors."""
        self._clears = "parameter gradient" in kept.quantities or any(
            isinstance(step, c.OptimizerStep) for step in case.schedule
        )
        self._used = False
        self._collected = False
        """Whether what is kept is collected in a list."""
        self._tail = _tail(self._steps, self._pairs)
        self._iteration = 0
        self._pending: list[_Pending] = []
        self._entries: list[str] = []
        self._returned: list[str] = []
        self._gradients = 0
        self._learned = False
        self._lines: list[str] = []

    # --- The whole ---

    def write(self) -> tuple[list[list[str]], list[str]]:
        """Return the functions that the steps call, and the steps; the last returns what was kept, if any."""
        steps = self._write_steps(0, len(self._steps))[0]
        self._flush(steps, last=True)
        return self._write_functions(), steps

    @property
    def collects(self) -> bool:
        """Whether what is kept is collected in a list; known when all is written."""
        return self._collected

    def _write_functions(self) -> list[list[str]]:
        blocks: list[list[str]] = []
        if any(isinstance(step, c.Backward) and _fails(step) for step in self._steps):
            blocks.append(["def interrupt(*_):", "    if failing:", "        raise InterruptedError"])
        forward = [] if self._inline else self._forward_function()
        step = self._pair_function() if self._pairs else []
        if not self._microbatched:
            blocks += self._regions.functions.values()
        return [*blocks, *(block for block in (forward, step) if block)]

    @property
    def fails(self) -> bool:
        """Whether a region raises in a step, as a flag then tells it."""
        return any(_fails(step) for step in self._steps)

    def _forward_function(self) -> list[str]:
        fresh = self._graph.scope()
        body = self._through("x", "return ", spare=True)
        self._graph.leave(fresh)
        if self._microbatched:
            own = [line for function in self._regions.functions.values() for line in (*function, "")]
            return ["def forward(x, first=None):", *indented([*own, *body])]
        return ["def forward(x):", *indented(body)]

    def _through(self, x: str, to: str, *, spare: bool = False) -> list[str]:
        """Return the lines that lead a tensor through the graph."""
        from harness.script_graph import uses

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

    @property
    def model(self) -> str:
        """The name of what holds all modules."""
        return self._names[0] if len(self._names) == 1 else "model"

    @property
    def needs_model(self) -> bool:
        """Whether modules are named together; known when all is written."""
        return self._used and len(self._names) > 1

    def _all_modules(self) -> str:
        self._used = True
        return self.model

    # --- Steps ---

    def _write_steps(self, start: int, end: int) -> tuple[list[str], int]:
        """Return the lines of the steps up to the end, or to that of the autocast that they are in."""
        lines: list[str] = []
        at = start
        while at < end:
            step = self._steps[at]
            at += 1
            if isinstance(step, c.CloseAutocast):
                break
            if isinstance(step, c.OpenAutocast):
                inner, at = self._write_steps(at, end)
                lines += [f"with {self._graph.autocast()}:", *indented(inner or ["pass"])]
            elif at - 1 in self._pairs:
                if self._learned and self._clears:
                    self._flush(lines)
                self._pair(at - 1, lines)
                at += 1
            else:
                lines += self._write_step(step, at - 1)
        return lines, at

    def _write_step(self, step: c.Step, at: int) -> list[str]:
        match step:
            case c.Forward():
                return self._forward(step, at)
            case c.Backward():
                return self._backward(step)
            case c.Abandon():
                dropped = self._pending.pop(step.which)
                drop = f"{dropped.out} = {dropped.out}.detach()" if self._kept_outputs else f"del {dropped.out}"
                return [f"{drop}  # its backward never comes"] if dropped.out else []
            case c.Evaluate():
                return self._evaluate(step)
            case c.SetMode():
                return [f"{self._names[step.module]}.{'train' if step.training else 'eval'}()"]
            case c.SetRecipe():
                return [f"recipe = {recipe(step.recipe)}"]
            case _:
                return self._rearrange(step)

    def _rearrange(self, step: c.Step) -> list[str]:
        learning = any(not leaf.frozen for leaf in c.modules(self._case))
        if isinstance(step, c.OptimizerStep):
            if not learning:
                return []
            return [f"torch.optim.SGD({self._all_modules()}.parameters(), lr={_LEARNING_RATE}).step()"]
        if isinstance(step, c.SaveState):
            return [f"saved = copy.deepcopy({self._all_modules()}.state_dict())"]
        if isinstance(step, c.DeepCopy):
            model = self._all_modules()
            lines = [f"{model} = copy.deepcopy({model})"]
            return lines if len(self._names) == 1 else [*lines, f"{listed(self._names)} = {model}.values()"]
        assert isinstance(step, c.LoadState)  # noqa: S101 - the only one left
        return self._load(extra=step.extra)

    def _load(self, *, extra: bool) -> list[str]:
        model = self._all_modules()
        saved = any(isinstance(step, c.SaveState) for step in self._steps)
        state = "saved" if saved else f"copy.deepcopy({model}.state_dict())"
        if not extra:
            return [f"{model}.load_state_dict({state})"]
        if len(self._names) == 1 and not saved:
            return [f"{model}.set_extra_state({model}.get_extra_state())"]
        own = '[f"{name}._extra_state" if name else "_extra_state"]'
        given = f"saved{own}" if saved else "module.get_extra_state()"
        names = f"name, module in {model}.named_modules()" if saved else f"module in {model}.modules()"
        return [
            f"for {names}:",
            '    if hasattr(module, "fp8_meta"):',
            f"        module.set_extra_state({given})",
        ]

    # --- Forwards and backwards ---

    def _normal(self, size: str) -> str:
        """Return a draw on the CPU, so that it is the same everywhere."""
        drawn = f"torch.randn({self._graph.shape}{', generator=generator' if self.draws_apart else ''})"
        return drawn if size == "1" else f"({size} * {drawn})"

    @property
    def draws_apart(self) -> bool:
        """Whether something else moves the state of the CPU's generator."""
        host = any(isinstance(leaf, c.TorchDropout) and leaf.on_cpu for leaf in c.modules(self._case))
        return host or any(isinstance(step, c.Backward) and _fails(step) for step in self._steps)

    def _input(self, size: str, *, learned: bool = False) -> str:
        half = self._case.dtype == "bfloat16"
        drawn = self._normal(size) + ('.to("cuda", torch.bfloat16)' if half else ".cuda()")
        return drawn + ".requires_grad_()" if learned and self._case.input_requires_grad else drawn

    def _cleared(self, lines: list[str]) -> None:
        """Clear the gradients, which a forward begins with, if there may be any."""
        if not (self._learned and self._clears):
            return
        self._flush(lines)
        lines.append(f"{self._all_modules()}.zero_grad()")
        self._learned = False

    def _has_name(self, at: int) -> bool:
        """Tell whether there is a forward here that needs names: one that is not written as a pair or dropped."""
        step = self._steps[at]
        if not isinstance(step, c.Forward) or at in self._pairs or step.fails is not None:
            return False
        following = self._steps[at + 1 : at + 2]
        pending = pending_after(self._steps)[at]
        dropped = not following or following == (c.Abandon(pending - 1),)
        return self._inline or self._kept_outputs or not dropped

    def _forward(self, step: c.Forward, at: int) -> list[str]:
        lines: list[str] = []
        self._cleared(lines)
        iteration = self._iteration
        self._iteration += 1
        digit = "" if self._alone else str(iteration + 1)
        x, out = f"x{digit}", f"out{digit}"
        first = "" if step.first_microbatch is None else f"first={step.first_microbatch}"
        drawn = self._input(number(step.magnitude), learned=True)
        keeps = "output" in self._kept.quantities and iteration >= self._kept.since
        if step.fails is not None:
            called = call("forward", drawn, first)
            return [
                *lines, "failing = True", "with contextlib.suppress(InterruptedError):", f"    {called}",
                "failing = False",
            ]  # fmt: skip
        if not self._has_name(at):
            self._pending.append(_Pending(iteration, x, ""))
            return [*lines, f"{call('forward', drawn, first)}  # its backward never comes"]
        self._pending.append(_Pending(iteration, x, out))
        if keeps:
            self._entries.append(f'("{out}", {out})')
        lines.append(f"{x} = {drawn}")
        if self._inline:
            return [*lines, *self._through(x, f"{out} = ")]
        return [*lines, f"{out} = {call('forward', x, first)}"]

    def _backward(self, step: c.Backward) -> list[str]:
        going = self._pending[step.which : step.which + step.losses]
        if not step.retain:
            del self._pending[step.which : step.which + step.losses]
        self._learned = True
        out = going[0].out
        loss = out if step.losses == 1 else f"({' + '.join(forward.out for forward in going)})"
        drawn = f"{self._normal(number(step.magnitude))}.to({out})"
        kept = self._kept
        if step.way == "grad":
            lines = self._by_grad(going, loss, drawn, retain=step.retain, entries=self._entries)
        else:
            lines = [call(f"{loss}.backward", drawn, "retain_graph=True" if step.retain else "")]
            for forward in going if step.fails is None else ():
                wanted = "input gradient" in kept.quantities and forward.iteration >= kept.since
                if wanted and self._case.input_requires_grad:
                    self._add(f'("{forward.x}.grad", {forward.x}.grad)')
            learned = "parameter gradient" in kept.quantities and step.fails is None
            if learned and going[0].iteration >= kept.since:
                self._add("")
        if step.fails is not None:
            suppressing = "with contextlib.suppress(InterruptedError):"
            return ["failing = True", suppressing, *indented(lines), "failing = False"]
        return lines

    def _add(self, entry: str) -> None:
        """Keep something; an empty entry stands for the parameters' gradients, which are kept last."""
        if entry not in self._entries:
            self._entries.append(entry)

    def _by_grad(
        self, going: list[_Pending], loss: str, drawn: str, *, retain: bool, entries: list[str]
    ) -> list[str]:
        """Return the backward by ``autograd.grad``, and add what it keeps."""
        inputs = [forward.x for forward in going if self._case.input_requires_grad]
        learning = [name for name, leaf in self._named_leaves() if not leaf.frozen]
        wanted = inputs
        if learning:
            some = " if p.requires_grad" if len(learning) < len(self._names) else ""
            wanted = [*inputs, f"*(p for p in {self._all_modules()}.parameters(){some})"]
        options = ["retain_graph=True" if retain else "", "allow_unused=True"]
        called = call("torch.autograd.grad", loss, f"[{', '.join(wanted)}]", drawn, *options)
        if not self._kept.quantities & {"input gradient", "parameter gradient"}:
            return [called]
        self._gradients += 1
        name = "gradients" if self._gradients == 1 else f"gradients{self._gradients}"
        entries.append(f'*(("gradient", found) for found in {name} if found is not None)')
        return [f"{name} = {called}"]

    def _named_leaves(self) -> list[tuple[str, c.Leaf]]:
        return list(zip(self._names, c.modules(self._case), strict=True))

    def _evaluate(self, step: c.Evaluate) -> list[str]:
        iteration = self._iteration
        self._iteration += 1
        keeps = "output" in self._kept.quantities and iteration >= self._kept.since
        drawn = self._input(number(step.magnitude))
        name = f"evaluated{iteration + 1}" if keeps else ""
        to = f"{name} = " if keeps else ""
        if self._inline:
            lines = [f"x = {drawn}", *self._through("x", to)]
        else:
            lines = [f"{to}forward({drawn})"]
        if keeps:
            self._entries.append(f'("{name}", {name})')
        return [f"with torch.{step.mode}():", *indented(lines)]

    # --- Iterations that are alike ---

    def _pair(self, at: int, lines: list[str]) -> None:
        """Write the call of ``step`` for a forward and its backward."""
        forward, backward = self._steps[at], self._steps[at + 1]
        assert isinstance(forward, c.Forward)  # noqa: S101
        assert isinstance(backward, c.Backward)  # noqa: S101
        values = {
            "size": number(forward.magnitude),
            "gradient_size": number(backward.magnitude),
            "first": str(forward.first_microbatch),
        }
        called = call("step", *(values[name] for name in self._varying()))
        self._learned = True
        self._iteration += 1
        if not self._kept.quantities or self._iteration <= self._kept.since:
            lines.append(called)
        elif at in self._tail and not self._entries and not self._collected:
            self._returned.append(called)
        else:
            self._flush(lines)
            self._collected = True
            lines.append(_COLLECTING.format(called))

    def _varying(self) -> list[str]:
        forwards = [step for at in self._pairs if isinstance(step := self._steps[at], c.Forward)]
        backwards = [step for at in self._pairs if isinstance(step := self._steps[at + 1], c.Backward)]
        varying = {
            "size": len({step.magnitude for step in forwards}) > 1,
            "gradient_size": len({step.magnitude for step in backwards}) > 1,
            "first": self._microbatched,
        }
        return [name for name, varies in varying.items() if varies]

    def _pair_function(self) -> list[str]:
        """Return the function ``step``, of which the calls are written already."""
        varying = self._varying()
        forward, backward = self._steps[self._pairs[0]], self._steps[self._pairs[0] + 1]
        assert isinstance(forward, c.Forward)  # noqa: S101
        assert isinstance(backward, c.Backward)  # noqa: S101
        size = "size" if "size" in varying else number(forward.magnitude)
        lines = []
        if self._clears:
            lines.append(f"{self._all_modules()}.zero_grad()")
        lines.append(f"x = {self._input(size, learned=True)}")
        if self._inline:
            lines += self._through("x", "out = ")
        else:
            lines.append(f"out = {call('forward', 'x', 'first' if self._microbatched else '')}")
        gradient = "gradient_size" if "gradient_size" in varying else number(backward.magnitude)
        drawn = f"{self._normal(gradient)}.to(out)"
        entries = ['("out", out)'] if self._kept_outputs else []
        if backward.way == "grad":
            lines += self._by_grad([_Pending(0, "x", "out")], "out", drawn, retain=False, entries=entries)
        else:
            lines.append(f"out.backward({drawn})")
            if "input gradient" in self._kept.quantities and self._case.input_requires_grad:
                entries.append('("x.grad", x.grad)')
            if "parameter gradient" in self._kept.quantities:
                entries.append("")
        if self._kept.quantities:
            lines += self._keeping(entries, _RETURNING)
        parameters = ["first=None" if name == "first" else name for name in varying]
        return [f"def step({', '.join(parameters)}):", *indented(lines)]

    # --- What is kept ---

    def _flush(self, lines: list[str], *, last: bool = False) -> None:
        """Write what is to be kept: into the results, or as what is returned where it is all there is."""
        entries, self._entries = self._entries, []
        if not self._kept.quantities:
            return
        if last and self._returned:
            lines.append(f"return {' + '.join(self._returned)}")
        elif last and not self._collected:
            lines += self._keeping(entries, _RETURNING)
        else:
            self._collected = self._collected or bool(entries)
            lines += self._keeping(entries, _COLLECTING) if entries else []
            lines += ["return results"] if last else []

    def _keeping(self, entries: list[str], form: str) -> list[str]:
        """Return the lines that keep entries; an empty one stands for the gradients of all parameters."""
        kept = [entry for entry in entries if entry]
        if "" not in entries:
            return [form.format(f"[{', '.join(kept)}]")]
        some = " if p.grad is not None" if self._kept.present else ""
        named = f"for name, p in {self._all_modules()}.named_parameters(){some}"
        gradients = f'[(f"{{name}}.grad", p.grad) {named}]'
        if not kept:
            return [form.format(gradients)]
        return [f"gradients = {gradients}", form.format(f"[{', '.join(kept)}, *gradients]")]


def _fails(step: c.Step) -> bool:
    return isinstance(step, c.Forward | c.Backward) and step.fails is not None


def _pairs(schedule: Sequence[c.Step]) -> list[int]:
    """Return the places of forwards that are followed by their own backward, alike but in size."""
    found: list[int] = []
    pending = 0
    for at, step in enumerate(schedule):
        following = schedule[at + 1] if at + 1 < len(schedule) else None
        if isinstance(step, c.Forward):
            if pending == 0 and not _fails(step) and isinstance(following, c.Backward) and _is_plain(following):
                found.append(at)
            pending += not _fails(step)
        elif isinstance(step, c.Backward):
            pending -= 0 if step.retain else step.losses
        elif isinstance(step, c.Abandon):
            pending -= 1
    ways = {step.way for at in found if isinstance(step := schedule[at + 1], c.Backward)}
    return found if len(found) > 1 and len(ways) == 1 else []


def _tail(schedule: Sequence[c.Step], pairs: Sequence[int]) -> list[int]:
    """Return the pairs with which a schedule ends."""
    end, tail = len(schedule), []
    for at in reversed(pairs):
        if at + 2 != end:
            break
        tail.append(at)
        end = at
    return tail


def _is_plain(step: c.Backward) -> bool:
    return step.which == 0 and step.losses == 1 and not step.retain and step.fails is None


def may_lack_gradients(case: c.Case) -> bool:
    """Tell whether there may be parameters without a gradient."""
    return any(
        (isinstance(node, c.Module) and node.frozen)
        or isinstance(node, c.GradMode | c.Discard)
        or (isinstance(node, c.Region) and node.contexts is not None)
        for node in c.walk(case.graph)
    )
