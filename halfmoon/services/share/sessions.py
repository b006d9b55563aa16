"""Share sessions: which partitions a member fetches, so that it does not have to name them all each time.

Each request says the session's epoch: 0 begins one (or begins it anew), −1 ends it, and in between it counts up by
one, so that a request which comes twice is noticed. A session belongs to the connection it was begun on and ends with
it. What the member holds is given back where a session ends, but not where it begins anew, which clients do after an
error while their records are being worked on. Rules: org.apache.kafka.server.share.session,
SharePartitionManager.newContext, acknowledgeSessionUpdate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from halfmoon.errors import BrokerError, Fault

FIRST_EPOCH, LAST_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1

Key = tuple[bytes, int]
"""Topic id, partition."""


class ShareSession:
    __slots__ = ("epoch", "group", "member", "owner", "parts")

    def __init__(self, group: str, member: str, owner: object) -> None:
        self.group = group
        self.member = member
        self.owner = owner
        self.epoch = 1
        """What the next request must say."""
        self.parts: dict[Key, None] = {}

    def rotated(self) -> list[Key]:
        """The partitions, another one first each time, so that each gets its turn."""
        keys = list(self.parts)
        at = self.epoch % len(keys) if keys else 0
        return keys[at:] + keys[:at]


class ShareSessions:
    def __init__(self, most: int) -> None:
        self._most = most
        self._by_member: dict[tuple[str, str], ShareSession] = {}
        self._by_owner: dict[object, dict[ShareSession, None]] = {}
        self._of_group: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_member)

    def get(self, group: str, member: str) -> ShareSession | None:
        return self._by_member.get((group, member))

    def any_of(self, group: str) -> bool:
        return group in self._of_group

    def begin(self, group: str, member: str, owner: object) -> ShareSession:
        """A new session; the caller has ended the old one. Raises BrokerError(SHARE_SESSION_LIMIT_REACHED)."""
        assert (group, member) not in self._by_member
        if len(self._by_member) >= self._most:
            raise BrokerError(Fault.SHARE_SESSION_LIMIT_REACHED)
        session = self._by_member[group, member] = ShareSession(group, member, owner)
        self._by_owner.setdefault(owner, {})[session] = None
        self._of_group[group] += 1
        return session

    def use(self, group: str, member: str, epoch: int) -> ShareSession:
        """The session of a request that is not its first. Raises BrokerError (122, 123)."""
        session = self._by_member.get((group, member))
        if session is None:
            raise BrokerError(Fault.SHARE_SESSION_NOT_FOUND)
        if epoch != LAST_EPOCH:
            if epoch != session.epoch:
                raise BrokerError(Fault.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        return session

    def update(self, session: ShareSession, added: Iterable[Key], forgotten: Iterable[Key]) -> None:
        for key in added:
            session.parts[key] = None
        for key in forgotten:
            session.parts.pop(key, None)

    def end(self, session: ShareSession) -> None:
        key = session.group, session.member
        if self._by_member.get(key) is not session:
            return
        del self._by_member[key]
        self._of_group[session.group] -= 1
        if not self._of_group[session.group]:
            del self._of_group[session.group]
        owned = self._by_owner.get(session.owner)
        if owned is not None:
            owned.pop(session, None)
            if not owned:
                del self._by_owner[session.owner]

    def of_owner(self, owner: object) -> list[ShareSession]:
        return list(self._by_owner.get(owner, ()))
