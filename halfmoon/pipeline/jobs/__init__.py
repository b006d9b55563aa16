"""What the pipeline does with topics as a whole; each job is a function here and a command `halfmoon pipeline …`.

archive.py       topics → Parquet, exactly once        archive_files.py   what lies in an archive, and what of it counts
compaction.py    many small files of it into few       replay.py          archive → topic
lag.py           groups' progress, sampled
"""
