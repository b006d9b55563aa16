"""What the pipeline does with topics as a whole; each job is a function here and a command `halfmoon pipeline …`.

archive.py          topics → Parquet, exactly once      compaction.py     many small files of it into few
archive_files.py    what lies there, and what counts    replay.py         archive → topic
reporting.py        topics → tables, charts, a page     report_kinds.py   what each report keeps and says
lag.py              how far groups have come            shop.py           a shop's orders → topic
"""
