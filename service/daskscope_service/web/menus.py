"""The menus: of all pages, and of the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flask import Blueprint, g, request

_MAIN = {
    "/": "Overview",
    "/clusters": "Clusters",
    "/computations": "Computations",
    "/jobs": "Jobs",
    "/findings": "Findings",
    "/exceptions": "Exceptions",
    "/profile": "Profile",
    "/events": "Events",
    "/logs": "Logs",
    "/people": "People and cost",
    "/settings/members": "Settings",
}

_SETTINGS = {
    "workspace": "Workspace",
    "members": "Members",
    "tokens": "Tokens",
    "policies": "Idle policies",
    "prices": "Prices",
    "retention": "Retention",
    "notifications": "Notifications",
    "audit": "Audit log",
}


@dataclass(frozen=True, slots=True)
class MenuLink:
    """A place in a menu. ``current`` is the value of ``aria-current``, "" elsewhere."""

    path: str
    words: str
    current: Literal["page", "true", ""]


def main_menu() -> list[MenuLink]:
    """Return the parts of the site; the part that holds this page is marked."""
    return [MenuLink(path, words, _current(path)) for path, words in _MAIN.items()]


def settings_menu(here: str) -> list[MenuLink]:
    """Return the pages of the settings that the reader may see; ``here`` is this one."""
    return [
        MenuLink(f"/settings/{name}", words, "page" if name == here else "")
        for name, words in _SETTINGS.items()
        if name != "audit" or g.session.role == "owner"
    ]


def _current(path: str) -> Literal["page", "true", ""]:
    if request.path == path:
        return "page"
    section = "/settings/" if path.startswith("/settings/") else f"{path}/"
    return "true" if path != "/" and request.path.startswith(section) else ""


def install(blueprint: Blueprint) -> None:
    """Give the menus to the templates of the application that gets ``blueprint``."""
    blueprint.add_app_template_global(main_menu)
    blueprint.add_app_template_global(settings_menu)
