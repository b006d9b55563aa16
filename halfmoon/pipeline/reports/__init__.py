"""What the pipeline finds out, as tables, pages and pictures.

report.py    a small result: Parquet, CSV, Markdown      page.py     the same as an HTML page without a network
drawing.py   what all charts look like; PNG and SVG      charts.py   success rate, delays, dead letters, lag
flights.py, flight_reports.py, flight_charts.py          the job that `python -m halfmoon.demo` runs
"""
