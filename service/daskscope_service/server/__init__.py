"""The process that receives requests and gives them to the application."""
