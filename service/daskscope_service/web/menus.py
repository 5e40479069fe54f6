"""The menu of all pages, and the menu of the settings."""

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
    "thresholds": "Thresholds",
    "retention": "Retention",
    "notifications": "Notifications",
    "audit": "Audit log",
}


@dataclass(frozen=True, slots=True)
class MenuLink:
    """A link in a menu. ``current`` is the value of ``aria-current``, "" for other pages."""

    path: str
    words: str
    current: Literal["page", "true", ""]


def main_menu() -> list[MenuLink]:
    """Return the main menu, with the current page or its section marked."""
    return [MenuLink(path, words, _current(path)) for path, words in _MAIN.items()]


def settings_menu(here: str) -> list[MenuLink]:
    """Return the menu of the settings that the user may see; ``here`` is the current page."""
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
    """Make the menus available to all templates of the app that registers ``blueprint``."""
    blueprint.add_app_template_global(main_menu)
    blueprint.add_app_template_global(settings_menu)
