"""A node whose loop is the test: the one builder of brokers for all rigs that need no process and no socket.

It is assembled as the server's is. What a test asks of it that it has not itself, it asks its kernel, topics and turn:
`node.append`, `node.create_topic`, `node.topic`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from halfmoon.config.settings import Settings
from halfmoon.core.clock import Clock
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.local import LocalStorage
from halfmoon.core.storage.storage import MakeStorage
from halfmoon.hooks.context import PluginContext
from halfmoon.plugins.store.delay.cancelling import Cancelling
from halfmoon.plugins.store.retry.configs import group_configs
from halfmoon.plugins.store.retry.policies import Policies, RetrySettings
from halfmoon.plugins.store.view.configs import VIEW_CONFIGS
from halfmoon.plugins.store.view.views import Views
from halfmoon.server.assembly import Node
from halfmoon.server.needs import NEEDS
from halfmoon.server.plugin_features import context_of
from halfmoon.services.common.filters import FilterCompiler
from halfmoon.services.waiting.types import PutInterceptor, Relay


class BareNode(Node):
    storage: ClassVar[MakeStorage] = LocalStorage
    """Of nodes that are not told another one. A test that wants all nodes of a rig over another engine replaces it
    (`staticmethod`)."""
    views: Views | None = None
    """Of the plugin of this name, if it is on."""
    cancelling: Cancelling | None = None
    """Of the plugin delay, if it is on."""

    def __init__(
        self,
        fs: FileSystem,
        settings: Settings,
        clock: Clock,
        random_bytes: Any,
        *,
        off: Collection[str] = (),
        **more: Any,
    ) -> None:
        """`off`: as of Node; and the built-in plugins that are off, of those that are features."""
        configs = () if "view" in off else (VIEW_CONFIGS,)
        more.setdefault("storage", type(self).storage)
        if "retry" not in off:
            more.setdefault("more_group_configs", group_configs(Policies(RetrySettings()).of_unstated))
        super().__init__(fs, settings, clock, random_bytes, off=off, more_topic_configs=configs, **more)

    def use(
        self,
        languages: Mapping[str, FilterCompiler],
        interceptors: Sequence[PutInterceptor] = (),
        relays: Sequence[Relay] = (),
    ) -> None:
        """What plugins hand over, and the plugins that are features; between `open` and `start`."""
        self.waiting.use([*self.interceptors(), *interceptors], relays)
        features = []
        if self.off.isdisjoint(("delay", *NEEDS["plugins.delay"])):
            self.cancelling = Cancelling(context_of(self, PluginContext("delay"), languages))
            features.append(self.cancelling.feature())
        if "view" not in self.off:
            self.views = Views(context_of(self, PluginContext("view"), languages))
            features.append(self.views.feature())
        self.extend(features)

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
