"""The control plane's part of ``/api/v1``: parse, call one service or selector, render."""
