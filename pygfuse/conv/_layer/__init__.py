"""What written layers share: the class behind them, and what looks at their calls."""
