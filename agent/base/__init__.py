"""What every room of the agent uses: clocks, durations, addresses, deadlines, plain text."""
