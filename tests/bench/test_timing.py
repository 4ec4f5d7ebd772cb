"""Times are taken in turn, with medians and quartiles."""

from pygfuse.bench.timing import Recorded, Spread, Step, interleaved


def test_sides_take_turns_of_some_steps():
    order = []
    steps = [Step('a', lambda: order.append('a'), warmup=0), Step('b', lambda: order.append('b'), repeats=3, warmup=0)]
    samples = interleaved(steps, 5, in_a_row=2)
    assert ''.join(order) == 'aabbaaba'
    assert {side: len(times) for side, times in samples.items()} == {'a': 5, 'b': 3}


def test_quartiles_lie_among_the_samples():
    spread = Spread.of([0.001, 0.003])
    assert (spread.low, spread.median, spread.high) == (1.5, 2.0, 2.5)


def test_sides_run_in_turn():
    seen: list[str] = []
    steps = [
        Step('slow', lambda: seen.append('slow'), repeats=1),
        Step('fast', lambda: seen.append('fast'), before=lambda: seen.append('before'), warmup=0),
    ]
    samples = interleaved(steps, 2)
    assert seen == ['slow', 'slow', 'before', 'fast', 'before', 'fast']
    assert {side: len(times) for side, times in samples.items()} == {'slow': 1, 'fast': 2}


def test_another_side_comes_first_each_time():
    seen: list[str] = []
    steps = [Step(name, lambda name=name: seen.append(name), warmup=0) for name in 'ab']
    interleaved(steps, 2, rotate=True)
    assert seen == ['a', 'b', 'b', 'a']


def test_a_device_is_waited_for_before_and_after():
    seen: list[str] = []
    Step('side', lambda: seen.append('run'), lambda: seen.append('before'), wait=lambda: seen.append('wait'))()
    assert seen == ['before', 'wait', 'run', 'wait']


def test_times_within_other_steps_are_kept_without_those_of_the_warmup():
    record = Recorded('walks')
    samples = interleaved([Step('step', lambda: record.times.append(1.0)), record], 2)
    assert samples['walks'] == [1.0, 1.0]
