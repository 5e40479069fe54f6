"""``explain()``: shows the data that would be sent, switch by switch, without sending it."""
