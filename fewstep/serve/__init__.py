"""An HTTP server for systems, in one process or on Ray Serve.

It needs the extra `[serve]` (FastAPI, uvicorn, prometheus-client), and `[serve-ray]` on a cluster. Both are imported in this folder
only, and nothing else in the runtime imports this folder.
"""
