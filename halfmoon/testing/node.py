"""A node whose loop is the test: the one builder of brokers for all rigs that need no process and no socket.

It is assembled as the server's is. What a test asks of it that it has not itself, it asks its kernel, topics and turn:
`node.append`, `node.create_topic`, `node.topic`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from halfmoon.core.storage.local import LocalStorage
from halfmoon.core.storage.storage import MakeStorage
from halfmoon.server.assembly import Node


class BareNode(Node):
    storage: ClassVar[MakeStorage] = LocalStorage
    """Of nodes that are not told another one. A test that wants all nodes of a rig over another engine replaces it
    (`staticmethod`)."""

    def __init__(self, *given: Any, **options: Any) -> None:
        options.setdefault("storage", type(self).storage)
        super().__init__(*given, **options)

    def __getattr__(self, name: str) -> Any:
        """Of the kernel, or of what it is made of."""
        kernel = self.__dict__.get("kernel")
        if kernel is None:
            raise AttributeError(name)
        for part in (kernel, kernel.appender, kernel.administration, kernel.catalog, kernel.turn):
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(f"neither the node nor its kernel has {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        """What a test replaces of the kernel is replaced there, where everybody calls it."""
        kernel = self.__dict__.get("kernel")
        if kernel is not None and name not in self.__dict__:
            for part in (kernel, kernel.appender, kernel.administration, kernel.turn):
                if hasattr(part, name):
                    setattr(part, name, value)
                    return
        super().__setattr__(name, value)
