"""The console command's arguments and what it starts; standard library only."""
