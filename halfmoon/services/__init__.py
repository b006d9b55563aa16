"""Features on top of the core: each in a folder with what it keeps in the log (`state.py`) and what it does.

A service gets by its constructor what it uses. It knows no socket, no event loop and no clock but the one it is given,
and no other service, but for what server/assembly.py hands it.
"""
