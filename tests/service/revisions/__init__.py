"""Rows as each revision of the schema keeps them: ``rNNNN.py`` holds ``ROWS``, by table.

All tables have some; those that are as before can be taken over (``ROWS = r0001.ROWS | {…}``).
A revision that is on main does not change any more, and neither do its rows.
"""
