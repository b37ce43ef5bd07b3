"""Files of arrays: what a file holds and where, and how a worker reads and writes its own part.

The controller reads headers and makes empty files; the data goes between the workers and the file.
A `Place` is the plain record that tells a worker where an array lies; a file for each format.
"""
