"""Every error that daskscope raises on purpose.

    DaskscopeError
    ├── ConfigurationError        a setting is missing or makes no sense; the message names it
    ├── NotOnScheduler            the scheduler's environment lacks the package
    ├── BudgetExceeded            a computation took more than is allowed; an AssertionError, too
    ├── NotMeasured               whether it did is not known
    └── ServiceError              the service did not do what was asked
        ├── ServiceUnreachable    no answer: address, network, or the service is down
        ├── AccessDenied          401 or 403: token missing, wrong, expired, or of too small a scope
        ├── NotFound              404: no such cluster, computation, … in this workspace
        └── ServiceTooOld         it does not know what was asked: upgrade the service

None of these is ever raised into a scheduler: there, errors are counted and logged once.
"""

from __future__ import annotations


def install_with(*extras: str) -> str:
    """Return the command that adds ``extras`` of this package.

    The command names a path, because daskscope is in no package index yet: a package of that name
    there would be somebody else's.
    """
    path = f"pip install '/path/to/daskscope[{','.join(extras)}]'"
    return f"{path}, with the path of daskscope's repository"


class DaskscopeError(Exception):
    """Base of all errors that daskscope raises on purpose."""


class ConfigurationError(DaskscopeError, ValueError):
    """A setting is missing or makes no sense. The message names it and says what would be right."""


class NotOnScheduler(DaskscopeError, ImportError):
    """The package cannot be imported by the scheduler. The message names the ways to fix it."""


class BudgetExceeded(DaskscopeError, AssertionError):
    """A computation exceeded a limit. The message says which, and contains its page's address."""


class NotMeasured(DaskscopeError):
    """Whether a computation is within its budget is not known. The message says what is missing."""


class ServiceError(DaskscopeError):
    """The service refused or failed.

    ``status`` is the HTTP status; None if there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServiceUnreachable(ServiceError):
    """The service gave no answer."""


class AccessDenied(ServiceError):
    """The token is missing, wrong, expired, revoked, or of too small a scope."""


class NotFound(ServiceError):
    """The service knows no such thing in this workspace."""


class ServiceTooOld(ServiceError):
    """The service's version is too old for the request."""
