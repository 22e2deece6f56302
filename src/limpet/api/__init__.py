"""The public API, sync and async: stores, scopes, leases, and the verbs behind them."""
