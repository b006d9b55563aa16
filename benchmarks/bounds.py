"""Why a target is missed, and what was tried: for the page."""

from __future__ import annotations

CLIENT_1K = """\
Memory that the virtual machine touches for the first time: alone on the machine the same load reached 710 MB/s with
the page cache's memory touched before and 440 without, at the same 0.3 ms of user time for a MB. Tried: a broker
that throws the batches away (890 MB/s, the client's limit), and counting the reads: there are 2.5 for a MB already."""

TWO_COPIES = """\
The kernel's copies. A bare loop of recv, CRC-32C and pwritev, with an fdatasync every 64 MB, takes 0.40 to 0.44 ms
for a MB: 0.12 receiving, 0.05 checksum, 0.19 writing, 0.07 syncing. The broker adds 0.15 of Python. Tried in that
loop: huge pages (0.32 instead of 0.35 without syncs), steps of 64 KB (0.33), steps that are written at once (0.65),
receiving into the mapped file (0.44), eight buffers instead of one (0.35)."""

SYNC_BATCHES = """\
The processor: the Java producer and the broker keep both cores busy, and a sync costs CPU that `flush: interval`
saves. The disk is not it: a bare loop with as much in the air (80 KB) writes and syncs 170 MB/s, the producer gets
30. Tried: the sync in the loop for all up to 256 KB (298,000 to 333,000 records a second, broker CPU 2.2 to 1.5 s;
in use where the disk is quick), segments filled with zeroes ahead as well (348,000 twice and 244,000 once, and every
byte is written twice), a pause of 1 ms between syncs (-8 %)."""

WAKING = """\
Waking the client. Where the answer comes later than some 5 us, the client's processor sleeps, and its waking takes
about 20 us on such a machine: an echo server with uvloop that computes for 28 us before each answer reaches 15,000 a
second on a quiet machine. Tried: looking for the next request without sleeping (9,300 to 14,200 a second), the turn at
once instead of at the end of a round (10,600 to 11,400), a compiled request (28 to 14 us of CPU in process; in use)."""

COMMITS = """\
Waking the client, which is most of it for both brokers: from run to run the same figure was 0.75 and 0.98x (Java's
offsets, p50), 0.47 and 1.08x (librdkafka's transactions, p99). Tried, and in use: an answer to OffsetCommit that is
written by hand (45 to 37 us for a commit), looking for the next request for 120 us without sleeping instead of 60. A
request decoder of its own, instead of the one by schema, would be another 8 us."""

TAIL = """\
Varies with the machine: the runs before this one had 0.49, 0.61 and 0.61x. Tried, and in use: looking for garbage
seldom, the turn at once instead of at the end of a round, looking for the next request without sleeping."""

DISK = """\
The fdatasync, which Kafka does not do: 0.13 ms one after the other, 0.22 ms at 500 a second on this disk. With
`flush: interval` and that much added it would be 1.3 to 1.4x. Tried in the broker: the fdatasync in the loop (p50 of
a ping-pong 0.305 to 0.237 ms), the turn at once (0.257 to 0.251 ms). Tried outside it: files filled with zeroes
ahead, and O_DSYNC (no change)."""

ONE_COPY = """\
The kernel's copy into the socket. A bare loop that sends slices of a mapped file takes 0.22 to 0.25 ms for a MB, of
the 0.16 to 0.26 that a third of Kafka's leaves from run to run. Tried in that loop: sendfile (0.50), pread and send
(0.34), mapping the pages ahead (0.23), read buffers that are used again (0.45 instead of 0.51). Tried in the broker:
slices of older data too, where mincore says that it is in memory (0.23 to 0.30 instead of 0.31 to 0.37; in use), a
send buffer of 4 MiB (0.25 instead of 0.30). Where some of it is not in memory it is copied once more; on this machine
something takes an eighth of all clean page cache away every five seconds, without any need."""

CLIENT_SHARE = """\
The client: both cores are busy. A broker that throws the batches away and answers at once gets 1,060,000 records a
second over 100 partitions and 533,000 from the Java producer, where Halfmoon gets 1,070,000 and 430,000 to 470,000.
Tried besides: answers that leave 1 to 8 ms later, so that batches are larger (910,000 to 1,090,000 over 100
partitions; 275,000 and less from the Java producer), and a loop that never stays awake (no change)."""

IMPORTS = """\
Python's start and imports: 220 ms where their files are in memory; in this run, which fills memory with other things,
more. Tried: kafka-python's clients are not imported (-20 ms), nor its messages that the broker does not have (-6 ms),
typer without pydantic (-60 ms), commands imported when they are used, fewer dataclasses (-13 ms). 35 ms of the rest are
kafka-python's message classes, 45 the command line."""

DISK_SPEED = """\
The disk, and memory touched for the first time: alone on the machine, `flush: sync` took 700 MB/s of 710 from
librdkafka and 1,160 of 1,840 for batches made before, then less with every repetition, as the page cache grew.
Tried: segments filled with zeroes ahead (1,150 instead of 1,160 MB/s, 440 instead of 700), and in a bare loop with 5
MB in the air two syncs at a time (+6 %) and starting to write right after each batch (sync_file_range: 0.6 to 1.2x)."""

FIRST_TOUCH = """\
Memory touched for the first time: three loads one after the other in the same broker took 0.3 to 0.45 ms of user
time for a MB, and 0.56, 1.7 and 2.7 ms of system time. Tried: touching 5 GB before (helps the first load only: the
machine's host takes back what is free), filling the page cache from a file before (in use here)."""

COLD_DISK = """\
Memory: who writes has to make room first. Tried: no more than a quarter of it left to what was read from the disk
(p99 1.1 to 2.3 instead of 1.4 to 6.4 ms; in use), nothing of it left (0.9 to 2.1), reads in steps of 128 KB (2 to
3.7)."""

PRODUCING_CLIENT = """\
The client: a broker that throws the batches away and answers at once gets 1.60 million records a second, Halfmoon 1.35
to 1.45 beside it. Tried: receive buffers of 4 MiB (1.37 and 1.46 instead of 1.45 and 1.35), of 256 KiB (1.38), answers
that leave 3 ms later (1.41)."""

CONSUMING_CLIENT = """\
The client: the broker takes a quarter of a core meanwhile. Tried, seven times each in turn: slices of older data too
(738 instead of 742 MB/s, with less CPU in the broker), send buffers of 4 MiB (746) and 512 KiB (733)."""

TWO_THOUSAND_FETCHES = """\
2,000 fetches a second, a fifth of the loop with their reads and writes. Tried: looking for garbage seldom (p99 3.5
to 1.8 ms; in use), the turn of who sends alone before others are read (1.8 to 1.3 ms; in use; without consumers it
fell from 0.95 to 0.72), waking at most eight, four or two at a time (no change), and consumers that are spread
evenly (p99 the same, p50 higher). Less would take a cheaper fetch: 16 us to park it and 10 us to answer it, in
Python."""

MADE_AHEAD = """\
Room that is made ahead: the segment that is being written, and the next one, have all their blocks from the beginning
(64 MiB each in this cell), so that no append waits for the file system, or finds the disk full in the middle of a
segment. What compaction leaves are 120 MB. Tried: segments of 16 MiB leave 152 MB. Not tried: blocks in steps, and no
next segment before the present one is half full (183 MB), and then none may be there when it is needed."""

ALONE_FASTER = """\
What it is compared with: a produce without the cleaner has a p99 of 0.7 ms here and of 4 ms with Kafka. Beside the
cleaner it is a quarter of Kafka's. Tried: the cleaner in a process of its own with the lowest priority (p99 of a loop's
lateness beside two busy processes 8.1 ms), with SCHED_IDLE (a little less, but on a busy machine it would never clean),
offering its core after each batch (4.1 ms; in use), removing files in a thread (stalls of 200 ms before)."""

HALF_AND_COMMIT = """\
Python: the broker keeps a core busy for 98 %, while the Java client takes a fifth of the other. Compiled, a half
message and its commit take some 200 us and 980,000 instructions, ten times what a Produce takes: half of them take a
batch apart and put it together again, twice. Tried, from 312 us interpreted: ends that come together as one batch
(204), the place of a half message learnt when it is appended instead of read from the log (184 of eight together),
frames that are dealt with not read again when they are due, a batch of one record inspected without walking it,
compiling what they run through (1.56 to 1.11 million instructions for the two, one by one), no generators, closures and
named tuples for the only record of a batch (0.98 million, 300 to 205 us), relays that have a turn each millisecond
instead of after each request (35 us less)."""

A_REQUEST = """\
Look-ups and small objects of the interpreter's own: no function but pwritev has more than 7 % of it. Tried, and in use,
from 121,700 to less than 93,000 instructions: [decision 0161](decisions/0161-compiled.md) has the steps. Tried
besides: link-time optimization (no change), and `-Os` (a fifth slower)."""

COLD_CODE = """\
The broker's code, which is in no cache at 500 messages a second: the system calls are those of the bare loop, and where
one message follows the other, a Produce and the Fetch that it wakes take 40 us together. Tried: the turn at once
instead of at the end of a round (in use), modules that call each other without asking the linker (4 % less, and a tenth
less code; in use), less code by `-Os` (a fifth slower)."""

COLD_CODE_AND_DISK = """\
The broker's code, which is in no cache at 500 messages a second, and the fdatasync, which both do: 0.22 ms on this
disk. Tried: the fdatasync in the loop instead of in a thread (p50 of a ping-pong 0.305 to 0.237 ms; in use where the
disk is quick), the turn at once (0.257 to 0.251 ms; in use), files filled with zeroes ahead, and O_DSYNC (no
change)."""

TAKEN_APART = """\
The broker: a batch with a record that waits is taken apart, and a MB costs it 14 to 21 ms of CPU instead of 2 to 3. It
shares two cores with the client, whose own rate changes by a third from round to round."""

SPARK_ALONE = """\
Spark's Kafka client and its rows: from the bare loop, which has nothing to do but to send, the same read takes as long.
The same rows from Parquet take 0.1 s and 1.6 s (stream into Parquet)."""

MANY_PRODUCERS = """\
The cores, which broker and client share. Tried, and in use: a loop in C that makes records of the messages, ids that
are written in one go, keys that are looked for in lists and hashed by compiled code (3.5 to 1.6 million instructions
for a batch of 100). What is left is the key index (a third), the request's JSON, and the answer with 100 ids."""

ONE_SENDER = """\
The broker, which has one core for all of it: 35 us of CPU for a message, compiled. From run to run 0.83 to 1.51x.
Tried: properties remembered as headers, UNIQ_KEYs looked for when they are appended."""

FLOW_CONTROL = """\
The client's flow control, and the same cores: a consumer that has 1,000 messages of a queue in its cache pulls again
after 50 ms, which answers that come soon run into: the broker takes 27 % of a core meanwhile. From run to run 0.66 to
0.80x. Tried: windows of 64 and 256 KiB, answers of fewer messages."""

SLEEPING_CLIENT = """\
Waking: at 200 messages a second every processor sleeps in between, and of the client's threads four are woken for a
message: at 2,000 a second the same way takes 0.44 ms. Tried: a loop that looks for 8 ms without sleeping (0.51 instead
of 0.88 ms, and a core is busy with 200 messages a second), consumers woken before the producer is answered (1.05)."""
