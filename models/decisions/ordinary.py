"""Ordinary texts, by language: what a statement is like that says nothing about the text at hand.

Each is about something else, so that no subject is usual. A statement is compared with all, and the language that it is
likest to counts: it is liker to any text of its own language, and that is no answer.
"""

from __future__ import annotations

ORDINARY = {
    "English": (
        "The window in the hall is open, and somebody has left an umbrella there.",
        "Could you please send me the list of participants by Friday?",
        "We met at the station and took the bus to the lake.",
        "The delivery came this morning, everything was complete.",
        "Our neighbours have a new dog; it barks all night.",
        "I would like to change my appointment with the dentist to next week.",
        "The museum shows paintings of the last century until the end of June.",
        "Thank you for the lovely evening, we enjoyed it very much.",
        "The printer on the second floor does not work again.",
        "The council will discuss the new playground in its next session.",
        "My daughter starts school in autumn and is already excited.",
        "The soup needs a little more salt, then it is done.",
        "Shares of the company fell slightly after the announcement.",
        "He has read the book twice and recommends it to everybody.",
        "The road to the village is closed because of building works.",
        "Please find attached the contract for your signature.",
        "She runs ten kilometres every Sunday, even in the rain.",
        "I am not sure whether I shall come; I will tell you tomorrow.",
        "The team meets on Monday at nine to plan the month.",
        "The heating makes strange noises, can somebody look at it?",
        "The choir is looking for singers, no experience is needed.",
        "This is a note for the file: the customer called twice.",
        "The apartment has three rooms and a balcony to the south.",
        "The doctor advised him to rest for a few days.",
    ),
    "German": (
        "Das Fenster im Flur ist offen, und jemand hat dort einen Schirm vergessen.",
        "Können Sie mir bitte bis Freitag die Liste der Teilnehmer schicken?",
        "Wir trafen uns am Bahnhof und fuhren mit dem Bus zum See.",
        "Die Lieferung kam heute Morgen, alles war vollständig.",
        "Unsere Nachbarn haben einen neuen Hund; er bellt die ganze Nacht.",
        "Ich möchte meinen Termin beim Zahnarzt auf nächste Woche verschieben.",
        "Das Museum zeigt bis Ende Juni Gemälde des letzten Jahrhunderts.",
        "Danke für den schönen Abend, es hat uns sehr gefallen.",
        "Der Drucker im zweiten Stock geht schon wieder nicht.",
        "Der Rat spricht in der nächsten Sitzung über den neuen Spielplatz.",
        "Meine Tochter kommt im Herbst in die Schule und freut sich schon.",
        "Die Suppe braucht noch etwas Salz, dann ist sie fertig.",
        "Die Aktien des Unternehmens gaben nach der Meldung etwas nach.",
        "Er hat das Buch zweimal gelesen und empfiehlt es allen.",
        "Die Straße zum Dorf ist wegen Bauarbeiten gesperrt.",
        "Anbei erhalten Sie den Vertrag zur Unterschrift.",
        "Sie läuft jeden Sonntag zehn Kilometer, auch bei Regen.",
        "Ich weiß noch nicht, ob ich komme; ich sage morgen Bescheid.",
        "Das Team trifft sich am Montag um neun, um den Monat zu planen.",
        "Die Heizung macht seltsame Geräusche, kann jemand nachsehen?",
        "Der Chor sucht Stimmen, Erfahrung ist nicht nötig.",
        "Eine Notiz für die Akte: Der Kunde hat zweimal angerufen.",
        "Die Wohnung hat drei Zimmer und einen Balkon nach Süden.",
        "Der Arzt riet ihm, sich ein paar Tage zu schonen.",
    ),
}
