"""Programs that keep some of their inputs from run to run."""

from __future__ import annotations

from threading import Event, Thread

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.session import Session

RNG = np.random.default_rng(0)
HIDDEN = 5


def value(name, shape, element=T.FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def model(nodes, inputs, outputs, weights=()):
    initial = [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in weights]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, initial), opset_imports=[helper.make_opsetid("", 20)])


def recurrent(batch):
    """An LSTM over three steps, whose state the caller brings back."""
    weights = [("w", RNG.standard_normal((1, 4 * HIDDEN, 4))), ("r", RNG.standard_normal((1, 4 * HIDDEN, HIDDEN)))]
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y", "h_next", "c_next"], "lstm", hidden_size=HIDDEN)
    states = [value(n, [1, batch, HIDDEN]) for n in ("h", "c", "h_next", "c_next")]
    return model([node], [value("x", [3, batch, 4]), *states[:2]], [value("y", [3, 1, batch, HIDDEN]), *states[2:]], weights)


STATES = {"h": "h_next", "c": "c_next"}


@pytest.mark.parametrize("engine", ["numpy", "native", "strict"])
@pytest.mark.parametrize("batch", [2, "batch"])
def test_the_state_of_an_lstm_stays_in_the_program(engine, batch):
    made = recurrent(batch)
    cell, plain = populus.compile(made, tiles=4, engine=engine).stateful(STATES), populus.compile(made, tiles=4, engine=engine)
    xs = [RNG.standard_normal((3, 2, 4)).astype(np.float32) for _ in range(3)]
    state = {n: np.zeros((1, 2, HIDDEN), np.float32) for n in STATES}
    for x in xs:
        expected = plain.run({"x": x, **state})
        found = cell.run({"x": x})
        assert list(found) == ["y"]
        np.testing.assert_array_equal(found["y"], expected["y"])
        state = {n: expected[o] for n, o in STATES.items()}
        np.testing.assert_array_equal(cell.get("c"), state["c"])
    again = RNG.standard_normal((1, 2, HIDDEN)).astype(np.float32)
    cell.set("h", again)
    np.testing.assert_array_equal(cell.run({"x": xs[0]})["y"], plain.run({"x": xs[0], **state, "h": again})["y"])
    cell.reset()
    zero = {n: np.zeros((1, 2, HIDDEN), np.float32) for n in STATES}
    np.testing.assert_array_equal(cell.run({"x": xs[0]})["y"], plain.run({"x": xs[0], **zero})["y"])


@pytest.mark.parametrize("engine", ["numpy", "native", "strict"])
def test_states_that_trade_places_and_states_that_nothing_changes(engine):
    nodes = [helper.make_node("Identity", [a], [b], b) for a, b in (("a", "to_b"), ("b", "to_a"), ("c", "to_c"))]
    nodes.append(helper.make_node("Sum", ["a", "b", "c"], ["y"], "y"))
    made = model(nodes, [value(n, [3]) for n in "abc"], [value(n, [3]) for n in ("to_a", "to_b", "to_c", "y")])
    program = populus.compile(made, tiles=4, engine=engine).stateful({"a": "to_a", "b": "to_b", "c": "to_c"})
    for n, x in (("a", 1), ("b", 10), ("c", 100)):
        program.set(n, np.full(3, x, np.float32))
    for a, b in ((10, 1), (1, 10)):
        np.testing.assert_array_equal(program.run({})["y"], [111] * 3)
        assert (program.get("a")[0], program.get("b")[0], program.get("c")[0]) == (a, b, 100)


def test_a_run_copies_neither_state_in_nor_out(monkeypatch):
    program = populus.compile(recurrent(2), tiles=4, engine="native").stateful(STATES)
    program.run({"x": np.ones((3, 2, 4), np.float32)})
    session = program._session
    assert isinstance(session, Session)
    assert (list(session.inputs), list(session.outputs)) == (["x"], ["y"])
    states = session._program.states
    assert states.trading == {"c"}  # whose memory and that of its next value trade places; that of h is a part of y
    before = {n: a.ctypes.data for n, a in states.now.items()}
    other = states.next[STATES["c"]].ctypes.data
    addresses: list[int] = []
    for _ in range(2):
        program.run({"x": np.ones((3, 2, 4), np.float32)})
        addresses.append(states.now["c"].ctypes.data)
        assert states.now["h"].ctypes.data == before["h"]
    assert addresses == [other, before["c"]]


@pytest.mark.parametrize("runs", [1, 2])
def test_an_observed_run_takes_states_from_where_they_are(runs):
    x = RNG.standard_normal((3, 2, 4)).astype(np.float32)
    made = recurrent(2)
    expected, program = (populus.compile(made, tiles=4, engine="native").stateful(STATES) for _ in range(2))
    for _ in range(runs):
        program.run({"x": x})
        expected.run({"x": x})
    session = program._session
    assert isinstance(session, Session)
    observed = session.run({"x": x}, lambda step, written: None)
    np.testing.assert_array_equal(observed["y"], expected.run({"x": x})["y"])
    np.testing.assert_array_equal(program.run({"x": x})["y"], expected.run({"x": x})["y"])
    for name in STATES:
        np.testing.assert_array_equal(program.get(name), expected.get(name))


@pytest.mark.parametrize("engine", ["numpy", "native", "strict"])
def test_a_run_that_is_not_committed_leaves_the_states(engine):
    module = populus.compile(recurrent(2), tiles=4, engine=engine).module("poplar")
    x = RNG.standard_normal((3, 2, 4)).astype(np.float32)
    one, two = (Session(module, engine, states=STATES) for _ in range(2))
    for _ in range(3):
        before = {n: one.state(n) for n in STATES}
        one.run({"x": 2 * x}, commit=False)
        one.run({"x": x}, commit=False)
        next = {n: one.memory_of(n, next=True).copy() for n in STATES}
        for n in STATES:
            np.testing.assert_array_equal(one.memory_of(n), before[n])
        one.commit()
        two.run({"x": x})
        for n in STATES:
            np.testing.assert_array_equal(one.state(n), next[n])
            np.testing.assert_array_equal(one.state(n), two.state(n))
    with pytest.raises(ValueError, match="read-only"):
        one.memory_of("c")[...] = 0


@pytest.mark.parametrize("engine", ["numpy", "native", "strict"])
def test_a_state_that_is_set_while_another_thread_runs_has_the_value_after_that_run(engine):
    session = Session(populus.compile(recurrent(2), tiles=4, engine=engine).module("poplar"), engine, states=STATES)
    begun, asked, x = Event(), Event(), RNG.standard_normal((3, 2, 4)).astype(np.float32)

    class Value:
        """A state that `set_state` asks for its elements."""

        def __array__(self, dtype=None, copy=None):
            asked.set()
            return np.full((1, 2, HIDDEN), 7, np.float32)

    def observe(step, written):
        begun.set()
        assert asked.wait(60)

    for name in STATES:
        begun.clear()
        asked.clear()
        running = Thread(target=session.run, args=({"x": x}, observe))
        running.start()
        assert begun.wait(60)
        session.set_state(name, Value())  # waits for the run, which waits for the value
        running.join()
        np.testing.assert_array_equal(session.state(name), np.full((1, 2, HIDDEN), 7))


GROWING = model(
    [helper.make_node("Concat", ["past", "new"], ["present"], "join", axis=1), helper.make_node("ReduceSum", ["present"], ["y"], "y")],
    [value("past", [1, "past", 2]), value("new", [1, "cur", 2])],
    [value("present", [1, "past + cur", 2]), value("y", [1, 1, 1])],
)


@pytest.mark.parametrize("engine", ["numpy", "native", "strict"])
def test_a_cache_with_a_bound_stays_in_one_program(engine):
    program = populus.compile(GROWING, dims={"past": (0, 6), "cur": (1, 2)}, tiles=4, engine=engine)
    cache, rows = program.stateful({"past": "present"}), []
    for cur in (2, 1, 1, 2):
        rows.append(RNG.standard_normal((1, cur, 2)).astype(np.float32))
        expected = np.concatenate(rows, axis=1)
        np.testing.assert_allclose(cache.run({"new": rows[-1]})["y"].item(), expected.sum(), rtol=1e-5)
        np.testing.assert_array_equal(cache.get("past"), expected)
    with pytest.raises(PopulusError, match="state 'past' would have 7 elements along 'past', which is bounded by 6; reset it"):
        cache.run({"new": np.ones((1, 1, 2), np.float32)})
    np.testing.assert_array_equal(cache.get("past"), expected)
    cache.reset()
    assert cache.run({"new": np.ones((1, 1, 2), np.float32)})["y"].item() == 2


def test_a_cache_whose_sum_has_a_bound_has_the_type_of_its_past():
    dims = {"past": (0, 4), "cur": 1, "past + cur": (1, 4)}
    program = populus.compile(GROWING, dims=dims, tiles=4, engine="numpy")
    cache = program.stateful({"past": "present"})
    for i in range(1, 5):
        assert cache.run({"new": np.ones((1, 1, 2), np.float32)})["y"].item() == 2 * i
    with pytest.raises(PopulusError, match="state 'past' would have 5 elements along 'past', which is bounded by 4"):
        cache.run({"new": np.ones((1, 1, 2), np.float32)})
    with pytest.raises(PopulusError, match="'past . 1' is 5 for past = 4, above its bound 4; compile with a larger bound"):
        program.run({"past": np.ones((1, 4, 2), np.float32), "new": np.ones((1, 1, 2), np.float32)})


def test_a_cache_without_a_bound_moves_from_bucket_to_bucket():
    program = populus.compile(GROWING, tiles=4, engine="numpy")
    cache, total = program.stateful({"past": "present"}), 0.0
    for i in range(20):
        row = RNG.standard_normal((1, 1, 2)).astype(np.float32)
        total += row.sum(dtype=np.float64)
        np.testing.assert_allclose(cache.run({"new": row})["y"].item(), total, rtol=1e-4, atol=1e-5)
        assert cache.get("past").shape == (1, i + 1, 2)
    assert program.sizes == "buckets"
    assert program.compilations == 7  # for a cache of no row, then of up to 2, 4, 8, 12, 16, 24


@pytest.mark.parametrize("engine", ["numpy", "native", "strict"])
def test_a_cache_that_begins_again_finds_its_programs_loaded_and_one_of_them_has_memory(engine):
    program = populus.compile(GROWING, tiles=4, engine=engine)
    cache, row = program.stateful({"past": "present"}), np.ones((1, 1, 2), np.float32)

    def sums():
        return [cache.run({"new": row})["y"].item() for _ in range(14)]

    assert sums() == [2 * n for n in range(1, 15)]
    loaded, compiled = list(cache._sessions.values()), program.compilations
    cache.reset()
    assert sums() == [2 * n for n in range(1, 15)]
    assert list(cache._sessions.values()) == loaded
    assert program.compilations == compiled
    with_memory = [session for session in loaded if session.state("past").any()]
    assert with_memory == [cache._session]


BATCHED = model(
    [helper.make_node("Concat", ["past", "new"], ["present"], "join", axis=1), helper.make_node("ReduceSum", ["present"], ["y"], "y")],
    [value("past", ["batch", "past", 2]), value("new", ["batch", "cur", 2])],
    [value("present", ["batch", "past + cur", 2]), value("y", [1, 1, 1])],
)


@pytest.mark.parametrize("engine", ["numpy", "native", "strict"])
@pytest.mark.parametrize(("batch", "prompt"), [(1, 3), (3, 1), (3, 5)])
@pytest.mark.parametrize("dims", [{}, {"batch": (1, 4)}], ids=["open batch", "bounded batch"])
def test_a_growing_cache_keeps_the_prompt_and_what_reset_and_set_leave(engine, batch, prompt, dims):
    cache = populus.compile(BATCHED, dims=dims, tiles=2, engine=engine).stateful({"past": "present"})

    def appended(rows, *sizes):
        for cur in sizes:
            rows = np.concatenate([rows, RNG.integers(-4, 5, (batch, cur, 2)).astype(np.float32)], 1)
            assert cache.run({"new": rows[:, -cur:]})["y"].item() == rows.sum()
            np.testing.assert_array_equal(cache.get("past"), rows)

    empty, two = np.zeros((batch, 0, 2), np.float32), np.ones((batch, 2, 2), np.float32)
    appended(empty, prompt, 1, 1)
    cache.reset()
    appended(empty, prompt, 1)
    cache.set("past", two)
    appended(two, prompt, 1)


def test_a_prompt_compiles_one_program():
    program = populus.compile(GROWING, tiles=2, engine="numpy")
    cache = program.stateful({"past": "present"})
    for cur, compiled in ((3, 1), (1, 2), (1, 2)):
        cache.run({"new": np.ones((1, cur, 2), np.float32)})
        assert program.compilations == compiled


@pytest.mark.parametrize("engine", ["numpy", "native", "strict"])
def test_a_state_may_shrink(engine):
    made = model([helper.make_node("Neg", ["new"], ["present"], "y")], [value("past", [1, "past"]), value("new", [1, "cur"])], [])
    made.graph.output.extend([value("present", [1, None]), value("seen", [1, None])])
    made.graph.node.add(op_type="Neg", input=["past"], output=["seen"])
    kept, before = populus.compile(made, tiles=2, engine=engine).stateful({"past": "present"}), np.zeros((1, 0), np.float32)
    for n in (9, 3, 12, 0, 5):
        x = RNG.standard_normal((1, n)).astype(np.float32)
        np.testing.assert_array_equal(kept.run({"new": x})["seen"], -before)
        before = -x


@pytest.mark.parametrize("dims", [{}, {"new.1": (1, 4)}], ids=["open", "bounded"])
def test_a_state_of_a_stated_size_keeps_it(dims):
    nodes = [helper.make_node("Concat", ["past", "new"], ["present"], "join", axis=1)]
    made = model(nodes, [value("past", [1, 2]), value("new", [1, None])], [value("present", [1, None])])
    kept = populus.compile(made, tiles=2, engine="numpy", dims=dims).stateful({"past": "present"})
    with pytest.raises(PopulusError, match=r"state 'past' would be \[1, 5\], and it is \[1, 2\]"):
        kept.run({"new": np.ones((1, 3), np.float32)})
    np.testing.assert_array_equal(kept.get("past"), np.zeros((1, 2)))


def test_a_run_that_raises_leaves_the_states():
    nodes = [helper.make_node("Add", ["s", "x"], ["t"], "t")]
    program = populus.compile(model(nodes, [value("s", [2]), value("x", [2])], [value("t", [2])]), tiles=4).stateful({"s": "t"})
    program.run({"x": np.ones(2, np.float32)})
    with pytest.raises(PopulusError, match=r"input 'x' has shape \[3\], expected \[2\]"):
        program.run({"x": np.ones(3, np.float32)})
    np.testing.assert_array_equal(program.get("s"), [1, 1])


def test_a_cache_that_grows_by_a_row_a_step():
    nodes = [helper.make_node("Concat", ["past", "new"], ["present"], "join", axis=1), helper.make_node("ReduceSum", ["present"], ["y"])]
    outputs = [value("present", [1, "m", 2]), value("y", [1, 1, 1])]
    made = model(nodes, [value("past", [1, "n", 2]), value("new", [1, "k", 2])], outputs)
    cache = populus.compile(made, tiles=4).stateful({"past": "present"})
    assert cache.get("past").shape == (1, 0, 2)
    for i in range(1, 4):
        assert cache.run({"new": np.ones((1, 1, 2), np.float32)})["y"].item() == 2 * i
        assert cache.get("past").shape == (1, i, 2)
    cache.reset()
    assert cache.run({"new": np.ones((1, 3, 2), np.float32)})["y"].item() == 6


PAIR = model(
    [helper.make_node("Cast", ["a"], ["b"], "b", to=T.INT32), helper.make_node("Neg", ["a"], ["c"], "c")],
    [value("a", [2, 3])],
    [value("b", [2, 3], T.INT32), value("c", [2, 3])],
)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ({"a": "b"}, "state 'a' is tensor<2x3xf32>, and output 'b' is tensor<2x3xi32>; a state keeps its type"),
        ({"x": "c"}, "state 'x': there is no input 'x'; there are a"),
        ({"a": "y"}, "state 'a': there is no output 'y'; there are b, c"),
    ],
)
def test_pairs_that_are_no_states_are_refused(pairs, said):
    with pytest.raises(PopulusError, match=said):
        populus.compile(PAIR, tiles=4).stateful(pairs)


def test_one_output_for_two_states_and_arrays_that_do_not_fit_are_refused():
    nodes = [helper.make_node("Add", ["a", "b"], ["c"], "c")]
    program = populus.compile(model(nodes, [value("a", ["n"]), value("b", ["n"])], [value("c", ["n"])]), tiles=4)
    with pytest.raises(PopulusError, match="states 'a' and 'b' both become output 'c'"):
        program.stateful({"a": "c", "b": "c"})
    kept = program.stateful({"a": "c"})
    for ask in (lambda: kept.get("b"), lambda: kept.set("b", np.zeros(2))):
        with pytest.raises(PopulusError, match="there is no state 'b'; there are a"):
            ask()
    with pytest.raises(PopulusError, match=r"state 'a' is float32 \[\?\]; given is float64 \[2\]"):
        kept.set("a", np.zeros(2))
    with pytest.raises(PopulusError, match=r"input 'a' is a state, which the program keeps; set\('a', array\) replaces it"):
        kept.run({"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)})
