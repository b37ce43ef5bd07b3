"""File formats: the arrays of a file, and how each worker reads and writes its own part.

The controller reads headers and creates files without data; the workers read and write the data. A
`StorageSpec` is a plain record of the location of an array in a file. Each format has a module.
"""
