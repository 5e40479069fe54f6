"""The daskscope service: keeps what clusters report, shows it, hands out tokens.

``daskscope_service.application.create_app`` makes the WSGI application, ``daskscope_service.cli``
is the command line. Everything but ``cli`` needs the extra ``daskscope[service]``.
"""
