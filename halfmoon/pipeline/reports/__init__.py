"""What the pipeline finds out, as tables, pages and pictures.

The reports, each from DataFrames:

success_rate.py     orders and payments joined             delays.py         how late delayed messages came
dead_letters.py     what groups have given up              lag.py            how far groups are behind
flights.py, flight_reports.py, flight_facts.py             what `make demo` makes of its flights

What becomes of them:

report.py     a small result; Parquet, CSV, Markdown       parts.py          reports that are made one after the other
publish.py    tables, charts and a page, as files          page.py           an HTML page that needs no network
unfinished.py the page until the report is there           drawing.py        what all charts look like
charts.py, success_charts.py, flight_charts.py             the charts
windows.py    windows of time within Spark                 window_axis.py    and as the bars of a chart
"""
