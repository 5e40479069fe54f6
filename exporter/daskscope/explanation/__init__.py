"""What would be sent, switch by switch, made by sending it nowhere."""
