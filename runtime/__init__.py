"""Serve time: opens a bundle and runs draft and target; imports only `plugins.contract` and the native library."""
