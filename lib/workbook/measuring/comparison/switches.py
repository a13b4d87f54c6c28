"""From the article's comparison to a fair one and on to a tuned one, one switch at a time.

A state is a pair of arms. A switch changes one thing in one of them, or the same thing in both. The states that an
order of switches passes through share arms, so that each arm is measured once, and a waterfall is read off any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbook.measuring.comparison.protocol import CLS, HIDDEN, SENTENCE, Protocol


@dataclass(frozen=True)
class State:
    """A comparison: the batch arm and the online arm."""

    batch: Protocol
    online: Protocol


@dataclass(frozen=True)
class Switch:
    """One thing that is changed.

    Attributes:
        name: short, for results.
        words: what changes, for a figure: "before -> after".
        apply: the state after it.
        detour: an alternative that is measured and shown, but that the next switch does not build on.
    """

    name: str
    words: str
    apply: Callable[[State], State] = field(repr=False)
    detour: bool = False


@dataclass(frozen=True)
class Step:
    """A switch where an order of switches has it."""

    switch: Switch
    before: State
    after: State


@dataclass(frozen=True)
class Plan:
    """The article's state and the switches to the fair and the tuned one.

    Attributes:
        article: where it starts.
        fair: switches that make the two arms equal but for the server.
        tuning: switches that make the online arm, and the batch arm with it, fast.
    """

    article: State
    fair: tuple[Switch, ...]
    tuning: tuple[Switch, ...]

    @property
    def fair_state(self) -> State:
        """Both arms on equal conditions."""
        return _last(self.article, self.fair)

    @property
    def tuned_state(self) -> State:
        """Both arms at their best."""
        return _last(self.fair_state, self.tuning)

    @property
    def note(self) -> str:
        """What the plan cannot make equal here; empty where it makes all equal but the server."""
        if self.fair_state.batch.engine == self.fair_state.online.engine:
            return ""
        return (
            " The engine stays different: in this process the exported model computes on the processor only, so what "
            "is left is the server and the engine together."
        )

    def orders(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """The steps as listed, and with the fair switches in reverse: the same ends, other states between."""
        tuning = steps_of(self.fair_state, self.tuning)
        return (
            (*steps_of(self.article, self.fair), *tuning),
            (*steps_of(self.article, self.fair[::-1]), *tuning),
        )

    def arms(self) -> tuple[Protocol, ...]:
        """Every arm that some order needs, once each, in the order they first appear."""
        states = [state for order in self.orders() for step in order for state in (step.before, step.after)]
        return tuple(dict.fromkeys(arm for state in states for arm in (state.batch, state.online)))


def steps_of(start: State, switches: Iterable[Switch]) -> tuple[Step, ...]:
    """The switches one after the other; a detour leaves the state as it was."""
    steps, state = [], start
    for switch in switches:
        after = switch.apply(state)
        steps.append(Step(switch, state, after))
        state = state if switch.detour else after
    return tuple(steps)


def make_plan(
    *,
    on_gpu: bool,
    precision: str,
    pad_to: int,
    streams: int,
    in_flight: int,
    batch_size: int,
    shared_memory: bool = True,
) -> Plan:
    """The plan for this machine; a switch that would change nothing here, or cannot be made here, is left out.

    Args:
        on_gpu: whether PyTorch computes on a GPU. The exported model does not in this process, so that there the engine
            and streams of it are no switches.
        precision: of the article's batch arm here, `fp32` or `bf16`.
        pad_to: length the article's online arm pads to, tokens; 0: as its batch arm.
        streams: copies of the model that together use all threads.
        in_flight: requests that keep them busy.
        batch_size: rows of a batch, and so the single rows in flight that can fill one.
        shared_memory: whether the server sees this process's shared memory.
    """
    article = State(
        Protocol(
            "batch", "torch", "launched", "bf16" if precision == "bf16" else "fp32", "cls", as_list=True,
            outputs=(CLS,), way="in-process",
        ),
        Protocol("online", "onnxruntime", pooling="cls", pad_to=pad_to, outputs=(HIDDEN, CLS)),
    )  # fmt: skip
    left_out = {
        "precision": precision != "bf16",
        "padding": not pad_to,
        "engine": on_gpu,
        "shared memory": not shared_memory,
        "2 in flight": on_gpu,
        "streams": on_gpu,
        "token batches": on_gpu,
        "in flight": not on_gpu,
    }
    fair, tuning = (
        tuple(switch for switch in switches if not left_out.get(switch.name, False))
        for switches in (_fair_switches(on_gpu, pad_to), _tuning_switches(streams, in_flight, batch_size))
    )
    return Plan(article, fair, tuning)


def _fair_switches(on_gpu: bool, pad_to: int) -> list[Switch]:
    clock = "does not wait for the GPU" if on_gpu else "stops before pooling"
    return [
        Switch(
            "clock", f"batch clock: {clock} -> stops at an array in memory", _batch(clock="in memory", as_list=False)
        ),
        Switch("precision", "batch precision: bf16 -> fp32, as served", _batch(precision="fp32")),
        Switch("padding", f"online padding: {pad_to} tokens -> longest row of the batch", _online(pad_to=0)),
        Switch("outputs", "online answer: hidden state and vector -> the vector alone", _without_hidden),
        Switch("pooling", "pooling, both: first token -> mean, with the prefix e5 wants", _mean),
        Switch(
            "engine", "batch engine: PyTorch -> ONNX Runtime, as served", _batch(engine="onnxruntime", precision="fp32")
        ),
    ]


def _tuning_switches(streams: int, in_flight: int, batch_size: int) -> list[Switch]:
    return [
        Switch("shared memory", "online transport: gRPC -> shared memory", _online(way="shared memory"), detour=True),
        Switch("2 in flight", "online: 1 -> 2 requests in flight", _online(in_flight=2), detour=True),
        Switch(
            "single rows",
            f"online: single rows, {2 * batch_size} in flight, put together by the server",
            _online(single_rows=True, in_flight=2 * batch_size),
            detour=True,
        ),
        Switch("sorting", "both: rows in file order -> sorted by length", _both(cut="length")),
        Switch("in flight", f"online: 1 -> {in_flight} requests in flight", _online(in_flight=in_flight)),
        Switch(
            "streams",
            f"both: one model on all threads -> {streams} on their share of them; {in_flight} requests in flight",
            lambda state: State(
                replace(state.batch, streams=streams), replace(state.online, streams=streams, in_flight=in_flight)
            ),
        ),
        Switch("token batches", "both: batches of equal rows -> of equal tokens", _both(cut="tokens")),
    ]


def _batch(**changes: Any) -> Callable[[State], State]:
    return lambda state: replace(state, batch=replace(state.batch, **changes))


def _online(**changes: Any) -> Callable[[State], State]:
    return lambda state: replace(state, online=replace(state.online, **changes))


def _both(**changes: Any) -> Callable[[State], State]:
    return lambda state: State(replace(state.batch, **changes), replace(state.online, **changes))


def _without_hidden(state: State) -> State:
    outputs = tuple(name for name in state.online.outputs if name != HIDDEN)
    return replace(state, online=replace(state.online, outputs=outputs))


def _mean(state: State) -> State:
    return State(*(replace(arm, pooling="mean", outputs=_as_mean(arm.outputs)) for arm in (state.batch, state.online)))


def _as_mean(outputs: Sequence[str]) -> tuple[str, ...]:
    return tuple(SENTENCE if name == CLS else name for name in outputs)


def _last(start: State, switches: Iterable[Switch]) -> State:
    steps = [step for step in steps_of(start, switches) if not step.switch.detour]
    return steps[-1].after if steps else start
