"""The composition root: puts core, plugins and adapters together into a process."""
