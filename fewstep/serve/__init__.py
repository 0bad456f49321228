"""An HTTP server for systems, in one process or on Ray Serve.

It needs the extra `[serve]` (FastAPI, uvicorn, prometheus-client; Ray Serve for `--ray`), which is imported in this folder only.
"""
