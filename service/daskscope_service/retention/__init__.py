"""What goes, and when: by age, by request, and the room that it leaves."""
