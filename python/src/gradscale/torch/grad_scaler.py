"""torch.amp.GradScaler with libgradscale behind it.

(1) The scaler's machine decides; torch's tensors _scale and _growth_tracker show what it says. On the CPU a
    value that somebody else wrote into them is taken over before the next step.
(2) An optimizer has one C step per update, in its entry of _per_optimizer_states. found_inf tensors that are
    not zero count as found, whoever filled them: ranks may sum them.
(3) With policy "pytorch" scales and gradients are torch's, to the bit.
"""
from __future__ import annotations

import ctypes
import math
import weakref
from collections import defaultdict
from typing import Any, Callable, Iterable, NamedTuple

import torch
from torch.amp.grad_scaler import _refresh_per_optimizer_state

from .. import _lib
from .._lib import APPLY, RETRY, GradscaleError, lib
from ..scaler import Counters, Scaler
from ._grads import GradList

_ref = ctypes.byref
_NEEDS_AMAX = ("headroom", "logmax", "adaptive")


class Offender(NamedTuple):
    """The first Inf or NaN of a step."""

    parameter: str
    index: tuple[int, ...]  # type: ignore[assignment]  # a tuple has a method of that name
    value: float


class Outcome(NamedTuple):
    """What became of a step."""

    applied: bool
    action: str  # "apply", "skip", "retry", "fail"
    reason: str  # "fine", "inf", "nan", "forward", ...
    scale: float  # that the step ran at
    amax: float  # of the gradients in true units; NaN: a device did not tell
    grad_norm: float  # before clipping; NaN: not asked for
    bad: Offender | None


class GradScaler(torch.amp.GradScaler):
    """A drop-in for torch.amp.GradScaler: the same constructor, methods, errors and state_dict.

    Beyond it: `policy` is any preset of gradscale.presets(), "headroom", "static:1024", ...; `settings` are those
    of doc/scaler.md; `on_overflow` is "skip", "retry:N" or "attribute"; `model` gives the parameters their names;
    `allow_fp16` takes f16 gradients, which torch refuses; `grad_norm` has `last.grad_norm` computed in the same
    pass. The four factors of torch are those of the policy unless they are given.

    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.SGD([w], lr=1)
    >>> scaler = GradScaler("cpu", model=[("w", w)])
    >>> for bad in (1.0, float("inf")):
    ...     optimizer.zero_grad()
    ...     scaler.scale((w * torch.tensor([1.0, bad])).sum()).backward()
    ...     _ = scaler.step(optimizer)
    ...     scaler.update()
    >>> scaler.last.applied, scaler.last.bad, scaler.get_scale()
    (False, Offender(parameter='w', index=(1,), value=inf), 32768.0)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float | None = None,
        growth_factor: float | None = None,
        backoff_factor: float | None = None,
        growth_interval: int | None = None,
        enabled: bool = True,
        *,
        policy: str = "pytorch",
        on_overflow: str = "skip",
        model: torch.nn.Module | Iterable[tuple[str, torch.Tensor]] | None = None,
        allow_fp16: bool = False,
        grad_norm: bool = False,
        settings: dict[str, Any] | None = None,
    ) -> None:
        scaler = Scaler(policy)
        if policy == "pytorch":  # as torch: into zero and infinity
            scaler.set(lowest="off", highest="off")
        params = scaler._c.params
        super().__init__(
            device,
            scaler.scale if init_scale is None else init_scale,
            _or(growth_factor, params.growth if params.growth > 1 else 2.0),
            _or(backoff_factor, params.backoff if params.backoff < 1 else 0.5),
            _or(growth_interval, params.interval),
            enabled,
        )
        given = {"init": init_scale, "growth": growth_factor, "backoff": backoff_factor, "interval": growth_interval}
        given = {key: value for key, value in given.items() if value is not None}
        if self._enabled:
            scaler.set(**given, **(settings or {}), on_overflow=on_overflow)
            self._init_scale = scaler.scale
        self._gs = scaler
        self._allow_fp16 = allow_fp16
        self._wants_norm = grad_norm or scaler.policy in _NEEDS_AMAX
        self._names: dict[int, str] = {}
        self._volatile()
        if model is not None:
            self.name_parameters(model)

    def _volatile(self) -> None:
        """What no copy and no checkpoint has."""
        self._lists: dict[int, GradList] = {}
        self._last: dict[str, Any] | None = None
        self._outcome: Outcome | None = None
        self._bad_names: list[str] = []

    def name_parameters(self, model: torch.nn.Module | Iterable[tuple[str, torch.Tensor]]) -> None:
        """Names for `last` and `explain`. Optimizers made from named_parameters() bring theirs."""
        pairs = model.named_parameters() if isinstance(model, torch.nn.Module) else model
        self._names = {id(parameter): name for name, parameter in pairs}

    # ---- the machine and torch's tensors ----

    def _take_over(self) -> None:
        """A scale that somebody else wrote."""
        if self._scale is None or self._growth_tracker is None or not self._scale.is_cpu:
            return
        scale, mine = self._scale.item(), self._gs.scale
        if scale != mine and scale != _f32(mine):
            self._gs.resume(scale, max(int(self._growth_tracker.item()), 0))

    def _show(self) -> None:
        scale = self._gs.scale
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(scale)
            self._growth_tracker.fill_(min(self._gs.clean_steps, 2**31 - 1))

    def get_scale(self) -> float:
        """The current scale, or 1.0 if scaling is disabled. No device is waited for."""
        if not self._enabled:
            return 1.0
        self._take_over()
        return self._gs.scale

    def _get_growth_tracker(self) -> int:
        return self._gs.clean_steps if self._enabled else 0

    def set_growth_factor(self, new_factor: float) -> None:
        self._gs.set(growth=new_factor)
        super().set_growth_factor(new_factor)

    def set_backoff_factor(self, new_factor: float) -> None:
        self._gs.set(backoff=new_factor)
        super().set_backoff_factor(new_factor)

    def set_growth_interval(self, new_interval: int) -> None:
        self._gs.set(interval=new_interval)
        super().set_growth_interval(new_interval)

    # ---- unscale ----

    def _begin(self, state: dict[str, Any]) -> _lib.Step:
        step = state.get("step")
        if step is None:
            self._take_over()
            others = any("step" in each for each in self._per_optimizer_states.values())
            if others and self._gs._c.rules.on_overflow:
                raise GradscaleError(
                    "several optimizers need on_overflow='skip': a batch that is retried would be applied twice by some",
                    "STATE",
                )
            step = state["step"] = _lib.Step()
            lib.gs_step_begin(_ref(step), _ref(self._gs._c))
        return step

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[torch.device, torch.Tensor]:
        """What torch's unscale_ and step call: gradients * inv_scale in place, and what was found per device."""
        state = self._per_optimizer_states[id(optimizer)]
        self._own(optimizer)
        tensors = [g for group in optimizer.param_groups for p in group["params"] if (g := p.grad) is not None]
        if not tensors:
            return {}
        grads = self._lists.get(id(optimizer))
        if grads is None:
            grads = self._lists[id(optimizer)] = GradList()
        if not grads.update(tensors, allow_fp16 or self._allow_fp16):
            tensors = _values(optimizer, allow_fp16 or self._allow_fp16)
            grads.update(tensors, True)
        step = self._begin(state)
        state.update(tensors=tensors, optimizer=weakref.ref(optimizer), list=grads)
        factor = inv_scale.item() if inv_scale.is_cpu else _f32(1 / self._gs.scale)
        # 1 / scale beyond f32: nothing can be unscaled, and torch's operator goes on as it always did.
        ours = grads.count if math.isfinite(factor) else 0
        theirs = grads.theirs if ours or not grads.count else tensors
        if ours:
            self._pass(step, grads, factor)
        found: dict[torch.device, torch.Tensor] = {}
        if theirs:
            found = self._pass_of_torch(step, state, theirs, inv_scale, found_inf)
            grads.theirs = []  # no reference outlives the gradients
        if ours:
            cpu = found.setdefault(_CPU, torch.zeros((), dtype=torch.float32))
            if step.stats.inf or step.stats.nan:
                cpu.fill_(1.0)
        if len(found) == 1 and _CPU in found and self._verdict(state, found).action != APPLY:
            found[_CPU].fill_(1.0)  # what only unscaling made infinite, for optimizers that look by themselves
        return found

    def _own(self, optimizer: Any) -> None:
        owner = getattr(optimizer, "_gradscale_owner", None)
        owner = owner() if owner is not None else None
        if owner is not None and owner is not self:
            if owner._per_optimizer_states.get(id(optimizer), {}).get("found_inf_per_device"):
                raise ValueError("another GradScaler has unscaled this optimizer's gradients and was not updated yet")
        if owner is not self:
            optimizer._gradscale_owner = weakref.ref(self)

    def _pass(self, step: _lib.Step, grads: GradList, factor: float) -> None:
        context, stats = grads.context, _lib.Stats()
        if self._gs.policy == "histogram":
            x = _exponents(grads)
            lib.gs_step_exponents(_ref(step), _ref(self._gs._c), _ref(x))
        pointer, count = grads.pointer, grads.count
        if factor == 1:
            context.run(lib.gs_tensors_scan, pointer, count, _ref(stats))
            lib.gs_step_scan(_ref(step), _ref(stats))
        elif self._wants_norm:
            context.run(lib.gs_tensors_unscale, pointer, pointer, count, factor, _ref(stats))
            lib.gs_step_scan(_ref(step), _ref(stats))
        else:  # a third faster
            context.run(lib.gs_tensors_scale, pointer, count, factor, _ref(stats))
            lib.gs_step_scan_unscaled(_ref(step), _ref(stats))

    def _pass_of_torch(
        self,
        step: _lib.Step,
        state: dict[str, Any],
        tensors: list[torch.Tensor],
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
    ) -> dict[torch.device, torch.Tensor]:
        """Torch's kernels: for a device, and for what the library does not take."""
        groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = defaultdict(list)
        found: dict[torch.device, torch.Tensor] = {}
        with torch.no_grad():
            for tensor in tensors:
                groups[tensor.device, tensor.dtype].append(tensor)
            for (device, _), group in groups.items():
                if device not in found:
                    found[device] = found_inf.to(device=device, non_blocking=True, copy=True)
                if self._gs.policy in _NEEDS_AMAX:
                    norms = torch._foreach_norm(group, math.inf, dtype=torch.float32)
                    state.setdefault("amax", []).append(torch.stack(norms).amax())
                torch._amp_foreach_non_finite_check_and_unscale_(
                    group, found[device], inv_scale.to(device=device, non_blocking=True)
                )
        state["pending"] = True
        return found

    # ---- the verdict ----

    def _verdict(self, state: dict[str, Any], found_inf: dict[torch.device, torch.Tensor] | None = None) -> Any:
        """Of an optimizer's step; a device is waited for here."""
        step = state["step"]
        found_inf = state["found_inf_per_device"] if found_inf is None else found_inf
        found = any([each.item() for each in found_inf.values()])
        if state.get("found") is found:  # as it was
            return state["verdict"]
        for amax in state.pop("amax", ()):
            lib.gs_step_amax(_ref(step), amax.item())
        if found:
            if not (step.stats.inf or step.stats.nan):
                lib.gs_step_flag(_ref(step), 1)
        elif state.pop("pending", False):
            lib.gs_step_flag(_ref(step), 0)
        state["found"] = found
        verdict = state["verdict"] = lib.gs_step_decide(_ref(step), _ref(self._gs._c))
        if verdict.action != APPLY:
            self._find(state)
        return verdict

    def _find(self, state: dict[str, Any]) -> None:
        """The first offender, while its gradient is still there."""
        if "bad" in state or "list" not in state:
            return
        step, tensors = state["step"], state["tensors"]
        place = None
        if step.stats.bad_tensor < state["list"].count:
            place = state["list"].locate(step.stats.bad_tensor, step.stats.bad_index, tensors)
        else:
            for i, tensor in enumerate(tensors):
                bad = ~torch.isfinite(tensor)
                if bad.any():
                    at = int(bad.flatten().to(torch.uint8).argmax())
                    place = i, tuple(int(x) for x in torch.unravel_index(torch.tensor(at), tensor.shape))
                    break
        state["bad"] = None
        if place is not None:
            names = self._names_of(state)
            state["bad"] = Offender(names[place[0]], place[1], float(tensors[place[0]][place[1]].item()))
            self._bad_names = names if step.stats.bad_tensor == _lib.NONE else self._entry_names(state, names)

    def _entry_names(self, state: dict[str, Any], names: list[str]) -> list[str]:
        owners = state["list"].owners
        return names if owners is None else [names[i] for i in owners]

    def _names_of(self, state: dict[str, Any]) -> list[str]:
        """Of the parameters that have a gradient."""
        optimizer, names = state["optimizer"](), []
        for g, group in enumerate(optimizer.param_groups if optimizer is not None else ()):
            given = group.get("param_names")
            for p, parameter in enumerate(group["params"]):
                if parameter.grad is not None:
                    name = given[p] if given else f"parameter {p} of group {g}"
                    names.append(self._names.get(id(parameter), name))
        return names

    # ---- step and update ----

    def _maybe_opt_step(
        self, optimizer: torch.optim.Optimizer, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        if self._verdict(optimizer_state).action == APPLY:
            return optimizer.step(*args, **kwargs)
        return None

    def step(
        self, optimizer: torch.optim.Optimizer, *args: Any, closure: Callable[[], Any] | None = None, **kwargs: Any
    ) -> Any:
        """torch's step. With on_overflow "retry:N" or "attribute" a `closure` may be given, which zeroes the
        gradients, runs forward and `scale(loss).backward()`, and returns the loss: it is called again, with the
        same random numbers, for as long as the scaler wants the batch retried. Returns the last loss then."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs) if closure is None else optimizer.step(closure, *args, **kwargs)
        if closure is None:
            result = super().step(optimizer, *args, **kwargs)
        elif self._gs._c.rules.on_overflow == 0:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        else:
            result = self._step_closure(optimizer, closure, *args, **kwargs)
        self._last, self._outcome = self._per_optimizer_states[id(optimizer)], None
        return result

    def _step_closure(
        self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any], *args: Any, **kwargs: Any
    ) -> Any:
        random = _random_state()
        while True:
            with torch.enable_grad():
                loss = closure()
            state = self._per_optimizer_states[id(optimizer)]
            step = self._begin(state)
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                lib.gs_step_loss(_ref(step), loss.item())
            super().step(optimizer, *args, **kwargs)
            if self._verdict(state).action != RETRY:
                return loss
            lib.gs_step_end(_ref(step), _ref(self._gs._c))
            del self._per_optimizer_states[id(optimizer)]
            self._show()
            random()

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """torch's update. The scale backs off once, however many optimizers found an Inf or NaN."""
        if not self._enabled:
            return
        if new_scale is not None:
            before = self._scale.clone() if self._scale is not None else None
            super().update(float(new_scale) if isinstance(new_scale, int) else new_scale)
            try:
                self._gs.scale = self._scale.item()  # type: ignore[union-attr]  # torch has checked it
            except GradscaleError:
                if self._scale is not None and before is not None:
                    self._scale.copy_(before)
                raise
            self._show()
            return
        self._check_scale_growth_tracker("update")
        states = [s for s in self._per_optimizer_states.values() if s["found_inf_per_device"]]
        if not states:
            raise AssertionError("No inf checks were recorded prior to update.")
        for state in states:
            self._verdict(state)
        if len(states) == 1:
            lib.gs_step_end(_ref(states[0]["step"]), _ref(self._gs._c))
        else:
            array = (_lib.Step * len(states))(*(state["step"] for state in states))
            _lib.call("gs_steps_end", array, len(states), _ref(self._gs._c))
        self._show()
        for state in states:
            state.pop("tensors", None)  # nothing keeps gradients alive
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    # ---- diagnosis ----

    @property
    def last(self) -> Outcome:
        """What became of the last step: `scaler.last.applied` is what an LR scheduler wants to know."""
        if self._outcome is None:
            if not self._enabled or self._last is None or "step" not in self._last:
                return Outcome(False, "skip", "no_grads", self.get_scale(), math.nan, math.nan, None)
            state, step = self._last, self._last["step"]
            verdict = self._verdict(state)
            known = bool(step.amax_known)
            norm = math.sqrt(step.stats.sumsq) * step.inverse if self._wants_norm and step.stats.elements else math.nan
            self._outcome = Outcome(
                verdict.action == APPLY,
                _lib.ACTIONS[verdict.action],
                _lib.REASONS[verdict.reason],
                step.scale,
                step.stats.amax * step.inverse if known else math.nan,
                norm,
                state.get("bad"),
            )
        return self._outcome

    @property
    def counters(self) -> Counters:
        """Steps attempted, applied, skipped by reason, retried."""
        return self._gs.counters

    def health(self) -> str:
        """CALIBRATING, HEALTHY, AT_FLOOR, AT_CEILING or STUCK."""
        return self._gs.health

    def explain(self) -> str:
        """What a user needs to be told, in a sentence: the state of the scale, and the parameter at fault."""
        text = self._gs.explain(self._bad_names)
        bad = self._last.get("bad") if self._last is not None else None
        if bad is not None and bad.parameter not in text:
            text += f"; the first {'NaN' if math.isnan(bad.value) else 'Inf'} was {bad.parameter}{list(bad.index)}"
        return text

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """torch's five entries, which its own GradScaler loads, and the whole state as text."""
        if not self._enabled:
            return {}
        self._take_over()
        return {**super().state_dict(), "gradscale": self._gs.save_text()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of torch's GradScaler or of this one. All or nothing."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved "
                "from a disabled instance of GradScaler."
            )
        scale = state_dict["scale"]
        factors = {
            "growth": state_dict["growth_factor"],
            "backoff": state_dict["backoff_factor"],
            "interval": state_dict["growth_interval"],
        }
        clean = state_dict["_growth_tracker"]
        next_ = self._gs.copy()
        if state_dict.get("gradscale"):
            next_.load_text(state_dict["gradscale"])
        mine = next_._c.params
        if (mine.growth, mine.backoff, mine.interval) != tuple(factors.values()):
            if next_.policy == "machine" and _is_torchs(mine):
                next_.set(**factors)
        if scale != next_.scale or clean != next_.clean_steps:
            next_.resume(scale, clean)
        self._gs = next_
        super().load_state_dict(state_dict)
        self._init_scale = next_.scale
        self._show()
        self._volatile()

    def __getstate__(self) -> dict[str, Any]:
        self._take_over()
        state = super().__getstate__()
        for key in ("_lists", "_last", "_outcome", "_bad_names", "_names"):
            state.pop(key, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._names = {}
        self._volatile()


_CPU = torch.device("cpu")


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _f32(x: float) -> float:
    return ctypes.c_float(x).value


def _values(optimizer: torch.optim.Optimizer, allow_fp16: bool) -> list[torch.Tensor]:
    """What torch unscales of each gradient, and refuses."""
    tensors = []
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        grad = parameter.grad
        if grad is None:
            continue
        if grad.dtype is torch.float16 and not allow_fp16:
            raise ValueError("Attempting to unscale FP16 gradients. (GradScaler(..., allow_fp16=True) unscales them.)")
        if grad.is_sparse:
            if grad.dtype is torch.float16:  # the sum of a coalesce may overflow where no term does
                grad = parameter.grad = grad.coalesce()
            grad = grad._values()
        tensors.append(grad)
    return tensors


def _is_torchs(params: _lib.Params) -> bool:
    """Growth and backoff are factors, as torch has them."""
    return bool(params.growth > 1 and params.backoff < 1)


def _exponents(grads: GradList) -> _lib.Exponents:
    from ..scaler import exponents_of

    class Entries:
        count = grads.count
        array = (_lib.Tensor * grads.count).from_address(grads.pointer)

    return exponents_of(Entries)  # type: ignore[arg-type]  # it has what is used


def _random_state() -> Callable[[], None]:
    """Call it to go back to the random numbers of now."""
    cpu = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None

    def back() -> None:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)

    return back
