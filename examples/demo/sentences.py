"""Sentences of the demo: pairs that mean the same (for a few training steps) and a small corpus to search."""

PAIRS = [
    ("How do I reset my password?", "I forgot my password and need a new one."),
    ("The train leaves at half past nine.", "Departure of the train is at 9:30."),
    ("She plays the violin in an orchestra.", "She is a violinist in an orchestra."),
    ("The bridge was closed because of ice.", "Ice made them shut the bridge."),
    ("Prices rose faster than wages.", "Wages did not keep up with prices."),
    ("A cat is sleeping on the sofa.", "On the couch lies a sleeping cat."),
    ("The model overfits the training data.", "It memorises its training set and generalises badly."),
    ("Water boils at a lower temperature in the mountains.", "At high altitude, the boiling point of water drops."),
    ("Please send the invoice by Friday.", "We need your bill before the weekend."),
    ("The court rejected the appeal.", "Judges turned the appeal down."),
    ("He repaired the bicycle himself.", "He fixed the bike on his own."),
    ("The vaccine protects against measles.", "Measles is prevented by the vaccine."),
]

CORPUS = [
    "A sparse matrix stores only the entries that are not zero.",
    "The activation function is applied after every linear layer.",
    "Our bakery opens at six in the morning.",
    "The satellite lost contact with the ground station.",
    "Bees communicate the place of flowers by dancing.",
    "The compiler writes the whole network into a single binary file.",
    "Tomatoes need a lot of sun and little wind.",
    "The orchestra rehearses twice a week.",
]

QUERIES = [
    "Which file does the compiled model end up in?",
    "Where can I buy bread early?",
    "How do insects tell each other about food?",
]
EXPECTED = [5, 2, 4]
