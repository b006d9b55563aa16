"""Consumers of both protocols come, go, crash, restart and change their minds in one group, while topics come, grow and
go, the strategy fails for a while, and the broker restarts, sometimes without its last words. What must hold:

- at any time a partition is read by one consumer at most, as the consumers themselves know it;
- the groups' own invariants hold, and no epoch that somebody was told comes again;
- a bounded time after the last event every partition is read by exactly one consumer that subscribes to its topic, if
  there is one.

Consumers are heard of more often than their sessions last: one that is not is taken for dead, and two may read then.
"""

from __future__ import annotations

import itertools

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.plugins.allocate.range import range_
from halfmoon.plugins.allocate.sticky import sticky
from halfmoon.plugins.allocate.uniform import uniform
from halfmoon.services.groups.consumer.settings import ConsumerSettings
from halfmoon.services.groups.coordination import Coordination
from halfmoon.services.groups.messages import GroupSettings, Persist
from tests.chance import trying
from tests.services.groups.consumer_clients import NewClient, OldClient, World
from tests.services.groups.consumer_script import FakeTopics, Remembered, breakable

ALLOCATORS = {"averagely": averagely, "range": range_, "sticky": sticky, "uniform": uniform}
TOPICS = st.sampled_from([("t",), ("t",), ("t", "u"), ("u",), ("later",), ()])
NAMES = st.sampled_from(["t", "u", "later", "tt"])
REGEXES = st.sampled_from(["", "", "t.*", "u|later", "x.*"])
INSTANCES = st.sampled_from([None, None, "i1", "i2"])
CLIENT = st.integers(0, 7)
MAX_CLIENTS = 5
SETTLED_AFTER_S = 120
"""The longest session and rebalance, and some heartbeats."""


class Groups(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.topics = FakeTopics()
        self.topics.make("t", 4)
        self.topics.make("u", 1)
        self.world = World(self.topics)
        self.world.deliver = self.deliver
        self.remembered = Remembered()
        self.ids = itertools.count(1)
        self.clients = []
        self.mute = False
        self.broken = False
        self.epoch = 0

    @initialize(assignor=st.sampled_from(sorted(ALLOCATORS)), cooperative=st.booleans())
    def begin(self, assignor, cooperative):
        self.settings = ConsumerSettings(default_assignor=assignor)
        self.cooperative = cooperative
        self.new_coordination()

    def new_coordination(self):
        self.world.coordination = Coordination(
            GroupSettings(), self.settings, self.topics, lambda prefix: f"{prefix}-{next(self.ids)}"
        )
        self.world.coordination.rebalancing.allocators = {
            name: breakable(each, lambda: self.broken) for name, each in ALLOCATORS.items()
        }

    def deliver(self, effects):
        for effect in effects:
            if self.mute:
                continue  # the broker is killed in the middle of this
            if isinstance(effect, Persist):
                self.remembered.save(effect.record)
            elif isinstance(effect.token, NewClient):
                effect.token.hear(effect.result)
            else:
                effect.token[0].hear(effect.token, effect.result)

    def client(self, number):
        return self.clients[number % len(self.clients)]

    def instance_taken(self, instance_id):
        return instance_id is not None and any(client.instance_id == instance_id for client in self.clients)

    # -- clients come, act and go

    @precondition(lambda self: len(self.clients) < MAX_CLIENTS)
    @rule(topics=TOPICS, regex=REGEXES, instance_id=INSTANCES)
    def new_client(self, topics, regex, instance_id):
        if not self.instance_taken(instance_id):
            self.clients.append(NewClient(self.world, f"n{next(self.ids)}", instance_id, topics, regex))
            self.clients[-1].beat()

    @precondition(lambda self: len(self.clients) < MAX_CLIENTS)
    @rule(topics=TOPICS, instance_id=INSTANCES, version=st.sampled_from([3, 4]))
    def old_client(self, topics, instance_id, version):
        if not self.instance_taken(instance_id):
            self.clients.append(OldClient(self.world, instance_id, topics, self.cooperative, version))
            self.clients[-1].step()

    @precondition(lambda self: self.clients)
    @rule(numbers=st.lists(CLIENT, min_size=1, max_size=6))
    def act(self, numbers):
        for number in numbers:
            self.client(number).step()

    @precondition(lambda self: self.clients)
    @rule(rounds=st.integers(1, 5))
    def all_act(self, rounds):
        for _ in range(rounds):
            for client in self.clients:
                client.step()
            self.tick(200)
            self.nobody_reads_what_another_reads()

    @precondition(lambda self: self.clients)
    @rule(number=CLIENT)
    def act_slowly(self, number):
        """A heartbeat before what it was told last is done."""
        self.client(number).beat() if isinstance(self.client(number), NewClient) else self.client(number).step()

    @precondition(lambda self: self.clients)
    @rule(number=CLIENT)
    def answer_lost(self, number):
        client = self.client(number)
        if isinstance(client, NewClient):
            client.beat(lose=True)

    @precondition(lambda self: self.clients)
    @rule(number=CLIENT, topics=TOPICS, regex=REGEXES)
    def subscribe(self, number, topics, regex):
        client = self.client(number)
        client.topics = topics
        if isinstance(client, NewClient):
            client.regex, client.says_all = regex, True

    @precondition(lambda self: self.clients)
    @rule(number=CLIENT, for_now=st.booleans(), crashes=st.booleans(), again=st.booleans(), switches=st.booleans())
    def leave(self, number, for_now, crashes, again, switches):
        """It leaves or crashes, and perhaps is started again at once, perhaps with the other protocol."""
        client = self.client(number)
        self.clients.remove(client)
        if not crashes:
            client.leave(for_now)
        if again:
            if isinstance(client, NewClient) != switches:
                self.clients.append(NewClient(self.world, f"n{next(self.ids)}", client.instance_id, client.topics, ""))
            else:
                self.clients.append(OldClient(self.world, client.instance_id, client.topics, self.cooperative, 4))
            self.clients[-1].step()

    # -- topics

    @rule(name=NAMES, partitions=st.integers(1, 6))
    def topic(self, name, partitions):
        number = self.topics.numbers.get(name)
        if number is None or partitions > self.topics.partitions(number):
            self.topics.make(name, partitions)

    @rule(name=NAMES)
    def drop(self, name):
        number = self.topics.numbers.get(name)
        if number is not None:
            self.topics.drop(name)
            for client in self.clients:
                client.forget_topic(number)

    @rule(broken=st.booleans())
    def strategy(self, broken):
        self.broken = broken

    # -- time and restarts

    @rule(ms=st.sampled_from([100, 300, 1_000, 4_000]))
    def tick(self, ms):
        for client in self.clients:
            if self.world.now - client.acted_ms >= 4_000:
                client.step()
        end = self.world.now + ms
        coordination = self.world.coordination
        while (deadline := coordination.next_deadline()) is not None and deadline <= end:
            self.world.now = max(self.world.now, deadline)
            self.deliver(coordination.expire(self.world.now))
            ahead = coordination.next_deadline()
            assert ahead is None or ahead > self.world.now
        self.world.now = end

    @rule()
    def restart(self):
        self.new_coordination()
        for client in self.clients:
            client.disconnected()
        wholes = [group.whole() for group in self.remembered.consumer.values()]
        classic = list(self.remembered.classic.values())
        self.world.coordination.restore(classic, wholes, self.world.now)

    @precondition(lambda self: self.clients)
    @rule(number=CLIENT)
    def kill(self, number):
        """The broker is killed while it answers: nothing of that is written, nobody is told."""
        self.mute = True
        self.client(number).step()
        self.mute = False
        self.restart()

    # -- always

    @invariant()
    def nobody_reads_what_another_reads(self):
        owners = {}
        for client in self.clients:
            for place in client.owned:
                assert place not in owners, f"{place} is read by two"
                owners[place] = client

    @invariant()
    def groups_are_sound(self):
        if not hasattr(self.world, "coordination"):
            return
        consumer = self.world.coordination.rebalancing.groups.get("g")
        classic = self.world.coordination.classic.find("g")
        assert consumer is None or classic is None
        if consumer is not None:
            consumer.check()
        if classic is not None:
            classic.check()
        if "g" in self.remembered.consumer:
            assert self.remembered.consumer["g"].epoch >= self.epoch
            self.epoch = self.remembered.consumer["g"].epoch
        elif "g" in self.remembered.classic:
            assert self.remembered.classic["g"].generation >= self.epoch
            self.epoch = self.remembered.classic["g"].generation

    def teardown(self):
        if not hasattr(self, "settings"):
            return
        calm, self.broken = 0, False
        for _ in range(SETTLED_AFTER_S):
            self.let_act()
            calm = 0 if self.unsettled() else calm + 1
            if calm == 5:
                break
        assert not self.unsettled()

    def let_act(self):
        for client in self.clients:
            client.step()
        self.tick(1_000)
        self.nobody_reads_what_another_reads()
        self.groups_are_sound()

    def unsettled(self):
        """Partitions that are not read by exactly one consumer that subscribes, if there is one."""
        living = [client for client in self.clients if not getattr(client, "dead", False)]
        found = []
        for number, (name, partitions) in self.topics.sizes.items():
            readers = [client for client in living if client.reads(name)]
            for index in range(partitions):
                owners = [client for client in living if (number, index) in client.owned]
                if len(owners) != (1 if readers else 0) or any(owner not in readers for owner in owners):
                    found.append(f"{name}-{index}")
        return found


TestGroups = Groups.TestCase
TestGroups.settings = trying(150)
