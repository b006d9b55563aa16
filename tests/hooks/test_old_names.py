"""Names of the plugin API that were renamed work for one version more, and say so."""

from __future__ import annotations

import pytest

import halfmoon.plugin
from halfmoon.hooks.context import PluginContext
from halfmoon.plugin import Nacked, PutInterceptor, Redirect, Redirected

PLACES = (("orders", 0, 7),)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Diverted", "Redirected"),
        ("HandedBack", "Nacked"),
        ("PutOff", "Reschedule"),
        ("Settle", "Complete"),
        ("Waiting", "Scheduled"),
    ],
)
def test_a_type_has_its_old_name_too(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"halfmoon.plugin.{old} is called {new} now") as warned:
        found = getattr(halfmoon.plugin, old)
    assert found is getattr(halfmoon.plugin, new)
    assert warned[0].filename == __file__
    assert old not in halfmoon.plugin.__all__


def test_any_other_name_is_unknown() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Undelivered'"):
        _ = halfmoon.plugin.Undelivered


def test_a_redirect_takes_its_old_arguments() -> None:
    redirected, nacked = (Redirected("later", 0, b""),), Nacked("billing", PLACES)
    with pytest.warns(DeprecationWarning, match=r"Redirect\.") as warned:
        old = Redirect(None, diverted=redirected, handed_back=nacked, settle=PLACES)
    assert [str(each.message) for each in warned] == [
        "Redirect.diverted is called redirected now",
        "Redirect.handed_back is called nacked now",
        "Redirect.settle is called complete now",
    ]
    assert warned[0].filename == __file__
    assert (old.redirected, old.nacked, old.complete) == (redirected, nacked, PLACES)


def test_an_interceptor_takes_its_old_argument() -> None:
    with pytest.warns(DeprecationWarning, match=r"PutInterceptor.waiting_topics is called scheduled_topics now"):
        old = PutInterceptor("later", ("LATER",), lambda put: put.batch, waiting_topics=("later",))
    assert old.scheduled_topics == ("later",)


class Host:
    """Answers what it is asked."""

    def is_scheduled(self, *place: object) -> bool:
        return place == ("orders", 0, 7)

    def was_nacked(self, *place: object) -> bool:
        return place == ("billing", "orders", 0, 7)


def test_a_context_has_its_old_methods() -> None:
    ctx = PluginContext("mine", host=Host())  # type: ignore[arg-type]
    with pytest.warns(DeprecationWarning, match="is_waiting is called is_scheduled now") as warned:
        assert [ctx.is_waiting("orders", 0, offset) for offset in (7, 8)] == [True, False]
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="was_handed_back is called was_nacked now") as warned:
        assert [ctx.was_handed_back("billing", "orders", 0, offset) for offset in (7, 8)] == [True, False]
    assert warned[0].filename == __file__
