"""kill −9 of the broker and of its clients, and what their histories say (`make torture`).

Each client writes down what it was told (worker.py). Read-process-write: a result for each job, once. A group: nobody
begins before what was committed, and nothing is passed over. A share group: what was accepted is given to nobody again,
and all is accepted in the end. Half messages: delivered once if their commit was answered, never if their rollback was.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chance import seeded
from tests.crash.load import QUICK
from tests.crash.serving import Serving, wait_until
from tests.torture.crew import Crew
from tests.torture.histories import check_group, check_halves, check_pipeline, check_sent, check_share
from tests.torture.reading_back import Stored, read_back
from tests.torture.worker import HALVES, JOBS, PARTITIONS, RESULTS

pytestmark = [pytest.mark.torture, pytest.mark.timeout(900)]

KILLS = 40
EVERY_S = (0.2, 2.5)
COPIES = {"feed": 1, "pipe": 2, "read": 2, "share": 2, "outbox": 1}
SETTLES_S = 240.0


def stored(servers: str) -> Stored:
    return read_back(servers, dict.fromkeys((JOBS, RESULTS, HALVES), PARTITIONS))


def test_histories(tmp_path: Path) -> None:
    dice = seeded()
    serving = Serving(
        tmp_path, log_flush="sync", groups_share_auto_offset_reset="earliest", groups_share_record_lock_duration="3s",
        groups_share_delivery_count_limit="10", plugins_transaction_timeout="600s",
    )  # fmt: skip
    serving.start()
    admin = AdminClient({"bootstrap.servers": serving.address, **QUICK})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (JOBS, RESULTS, HALVES)]
    for future in admin.create_topics([*topics, NewTopic("halfmoon.transactions", 1, 1)]).values():
        future.result(30)
    crew = Crew(serving.address, tmp_path, COPIES)
    try:
        crew.revive()
        time.sleep(3)
        for _ in range(KILLS):
            time.sleep(dice.uniform(*EVERY_S))
            if dice.random() < 0.3:
                serving.kill()
                time.sleep(dice.uniform(0, 0.5))
                serving.start()
            else:
                crew.kill(dice.choice(crew.roles)[1])
            crew.revive()
        crew.end("feed", "outbox")
        jobs = stored(serving.address)[JOBS]
        count = sum(map(len, jobs))

        def is_over() -> bool:
            crew.revive()
            accepted = {tuple(what[1:3]) for _, what in crew.history("share") if what[0] == "accepted"}
            got = {tuple(what[1:3]) for _, what in crew.history("read") if what[0] == "got"}
            return min(len(accepted), len(got), sum(map(len, stored(serving.address)[RESULTS]))) >= count

        try:
            wait_until(is_over, SETTLES_S, "all jobs are done")
        except AssertionError:
            pass  # the checks below say what is missing
        late = crew.end()
        assert not late, f"{late} do not end"
        found, outbox = stored(serving.address), crew.history("outbox")
        assert check_sent(crew.history("feed"), jobs) == []
        assert check_pipeline(jobs, found[RESULTS]) == []
        assert check_group(crew.history("read"), jobs) == []
        assert check_share(crew.history("share"), jobs) == []
        assert check_halves(outbox, found[HALVES]) == []
        assert len([what for _, what in crew.history("feed") if what[0] == "acked"]) > 500
        assert len([what for _, what in outbox if what[:2] == ["decided", "commit"]]) > 50
    finally:
        crew.end()
        serving.stop()
    print(f"{count} jobs, {KILLS} kills")
