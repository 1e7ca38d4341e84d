"""The console in a real browser: Chromium, driven by Playwright, with a broker in a process of its own."""
