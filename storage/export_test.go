package storage

// Schema is what this program writes, for the name of a saved store.
const Schema = schema
