"""What is read from the output of librdkafka's tests."""

from __future__ import annotations

from tools.interop_librdkafka import Outcome, outcomes, said

PRINTED = """\
[0m[36m[0001_multiobj               /  0.000s] ================= Running test 0001_multiobj =================
[0002_unkpart                /  0.000s] ================= Running test 0002_unkpart =================
[0001_multiobj               /  1.200s] 0001_multiobj: duration 1200.500ms
[0001_multiobj               /  1.200s] ================= Test 0001_multiobj PASSED =================
### Test "0002_unkpart (do_test:60)" failed at 0002-unkpart.c:115:do_test() at Thu Nov 26 02:16:29 2026: ###
Test assertion failed: "now"
[0003_msgmaxsize             /  0.000s] ================= Running test 0003_msgmaxsize =================
[0004_conf                   /  0.000s] WARN: SKIPPING TEST: Filtered due to negative test flags
[0135_sasl_credentials       /  0.001s] WARN: SKIPPING TEST: Test requires SASL PLAIN or SASL SCRAM
[0084_destroy_flags          /  0.000s] WARN: SKIPPING TEST: FIXME[0084_destroy_flags          /  0.000s] its duration
### Test "<MAIN>" failed at test.c:1950:test_wait_exit() at Thu Nov 26 02:19:59 2026: ###
8 thread(s) still active in librdkafka
"""


def test_outcomes_are_there_although_the_program_broke_off() -> None:
    found = outcomes(PRINTED)
    assert found == {
        "0001_multiobj": Outcome("passed", "", 1.2005),
        "0002_unkpart": Outcome("failed", 'Test assertion failed: "now"', 0),
        "0003_msgmaxsize": Outcome("failed", "it did not end", 0),
        "0084_destroy_flags": Outcome("skipped", "FIXME", 0),
        "0135_sasl_credentials": Outcome("skipped", "Test requires SASL PLAIN or SASL SCRAM", 0),
    }
    assert said(found) == "1 passed, 2 failed, 2 skipped"
