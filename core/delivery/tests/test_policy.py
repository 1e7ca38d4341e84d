"""Members that starve, hoard or are held back: what the policy must not let happen, in simulated time."""

import pytest

from kumquat.core.delivery import actions
from kumquat.core.delivery.policy import FIRST_WINDOW, PATIENCE, SMALLEST_WINDOW, Pace
from kumquat.core.delivery.tests.simulation import SID, Client, Simulation, crowd


@pytest.mark.parametrize("kind", ["greedy", "modest", "mixed"])
@pytest.mark.parametrize("count", [2, 8, 32])
def test_members_that_start_together_finish_together(count: int, kind: str) -> None:
    simulation = Simulation(20_000)
    for client in crowd(count, 0.005, kind):
        simulation.join(client)
    took, ideal = simulation.run(), 20_000 * 0.005 / count
    assert took <= 1.25 * ideal
    share = 20_000 / count
    assert all(0.5 * share <= client.done <= 1.5 * share for client in simulation.clients)


@pytest.mark.parametrize("kind", ["greedy", "mixed"])
def test_members_that_come_later_get_their_share_of_what_one_hoards(kind: str) -> None:
    simulation = Simulation(20_000)
    simulation.join(Client("first", greedy=True, seconds=0.005))
    simulation.run(until=10.0)
    left = 20_000 - simulation.handled
    for client in crowd(7, 0.005, kind):
        simulation.join(client)
    took, ideal = simulation.run() - 10.0, left * 0.005 / 8
    assert took <= 1.5 * ideal
    assert simulation.steals.count("first") == 1, "a rebalance is rare"


@pytest.mark.parametrize("kind", ["greedy", "modest", "mixed"])
def test_handlers_that_do_nothing_are_not_throttled(kind: str) -> None:
    simulation = Simulation(200_000)
    for client in crowd(4, 0.0, kind):
        simulation.join(client)
    took = simulation.run()
    assert took <= 1.0, "someone waited for a commit"
    assert not simulation.steals


@pytest.mark.parametrize(("seconds", "rate"), [(0.0, 40_000), (0.0005, 6_000)])
def test_a_stream_is_followed_whenever_its_readers_commit(seconds: float, rate: int) -> None:
    simulation = Simulation(0)
    for client in crowd(4, seconds, "mixed"):
        simulation.join(client)
    worst = 0
    while simulation.now < 20.0:
        simulation.readable_end = simulation.messages = int(rate * simulation.now)
        simulation.run(until=simulation.now + 0.0049)
        worst = max(worst, simulation.readable_end - simulation.handled)
    assert worst < rate, "readers that keep up are more than a second behind"
    assert not simulation.steals


def test_a_burst_after_quiet_times_is_shared() -> None:
    simulation = Simulation(0)
    for client in crowd(8, 0.005, "mixed"):
        simulation.join(client)
    while simulation.now < 15.0:
        simulation.readable_end = simulation.messages = int(simulation.now * 20)
        simulation.run(until=simulation.now + 0.0049)
    before, begun = {c.name: c.done for c in simulation.clients}, simulation.now
    simulation.readable_end = simulation.messages = simulation.readable_end + 20_000
    assert simulation.run() - begun <= 1.25 * 12.5
    assert all(1250 <= c.done - before[c.name] <= 3750 for c in simulation.clients)


def test_a_frozen_member_does_not_keep_its_part_from_the_others() -> None:
    simulation = Simulation(2_000)
    frozen = simulation.join(Client("frozen", greedy=False, seconds=1e9))
    alive = simulation.join(Client("alive", greedy=False, seconds=0.001))
    simulation.run(until=20.0)
    assert frozen.log is not None
    assert alive.done == 2_000 - frozen.log.unacked, "all but what the frozen one holds"


def test_a_client_that_commits_after_all_messages_is_not_starved_of_the_last() -> None:
    """Its share is used up, and it will not commit before it has more: a little comes all the same."""
    simulation = Simulation(100)
    never = 1e9
    client = simulation.join(Client("patient", greedy=True, seconds=0.0, commit_every=never))
    other = simulation.join(Client("idle", greedy=False, seconds=0.0, asks=0, commit_every=never))
    simulation.run(until=60 * PATIENCE)
    assert client.done == 100
    assert other.done == 0


# --- paces ---------------------------------------------------------------------------------------


def test_a_window_settles_at_twice_what_is_acked_between_two_commits() -> None:
    pace = Pace()
    assert pace.window == FIRST_WINDOW
    pace.given(50_000, 0.0)
    for commit in range(1, 6):
        pace.acked(50_000 - 1_000 * commit, 5.0 * commit)
        assert pace.window == 2_000
    assert pace.rate == pytest.approx(200)


def test_a_member_that_has_nothing_left_is_not_taken_for_slow() -> None:
    pace = Pace()
    for commit in range(1, 10):
        pace.given(3, 5.0 * commit - 1)
        pace.acked(0, 5.0 * commit)
    assert pace.window == FIRST_WINDOW


def test_a_window_that_is_always_used_up_and_worked_off_widens() -> None:
    pace = Pace()
    pace.given(FIRST_WINDOW, 0.0)
    pace.acked(0, 5.0)
    assert pace.window == 2 * FIRST_WINDOW


def test_a_member_that_commits_each_message_still_gets_a_seconds_work() -> None:
    pace = Pace()
    pace.given(500, 0.0)
    for number in range(1, 200):
        pace.acked(500 - number, 0.005 * number)
    assert 150 <= pace.window <= 250


def test_a_slow_member_gets_few_at_a_time() -> None:
    pace = Pace()
    pace.given(500, 0.0)
    for number in range(1, 20):
        pace.acked(500 - number, 10.0 * number)
    assert pace.window == SMALLEST_WINDOW


# --- taking back --------------------------------------------------------------------------------


def hoarder(seconds_of_work: float) -> Simulation:
    """One member holds 1,000 messages, of known pace; another has waited for 2 s."""
    simulation = Simulation(0)
    for client in crowd(2, 0.0):
        simulation.join(client)
    log = simulation.progress.pull_logs[1]
    simulation.do(actions.Pull(1, SID, 1, log.next, [[0, 1100, 1]]))
    simulation.now = 100 * seconds_of_work / 1000
    simulation.do(actions.Ack(1, SID, 1, log.begin + 100))
    simulation.readable_end = 1100
    simulation.policy.nothing_given(simulation.progress.pull_logs[2], simulation.now)
    simulation.now += 2.0
    return simulation


def stolen(simulation: Simulation) -> str | None:
    return simulation.policy.steal(
        simulation.progress,
        readable_end=simulation.readable_end,
        sharers=2,
        now=simulation.now,
        after_ms=1000,
    )


def test_work_is_taken_back_from_a_slow_member_and_rarely() -> None:
    simulation = hoarder(60)
    assert stolen(simulation) == "greedy-0"
    assert stolen(simulation) is None
    simulation.now += 10
    assert stolen(simulation) is None


def test_nothing_is_taken_back_from_a_fast_member() -> None:
    assert stolen(hoarder(1.5)) is None


def test_nothing_is_taken_back_while_there_is_something_to_give() -> None:
    simulation = hoarder(60)
    simulation.readable_end += 1
    assert stolen(simulation) is None


def test_nothing_is_taken_back_before_someone_has_waited_long_enough() -> None:
    simulation = hoarder(60)
    simulation.now -= 1.5
    assert stolen(simulation) is None
