-- A change log of format 2, as that version of the store left it when it was closed.
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE graphs (
  graph TEXT PRIMARY KEY, digest TEXT NOT NULL, owner TEXT NOT NULL, generation INTEGER NOT NULL, changed TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "graphs" VALUES('https://kg.example/id/domain/a','5b48df2ae49da399877b176500ab51a6','user',2,'2026-11-27T12:00:02+00:00');
INSERT INTO "graphs" VALUES('https://kg.example/id/domain/b','2ba282de774620b320702bccead1daf0','kubernetes:prod',1,'2026-11-27T12:00:01+00:00');
INSERT INTO "graphs" VALUES('https://kg.example/id/domain/d','48c00d607933c5708512a72ace65089d','user',3,'2026-11-27T12:00:03+00:00');
CREATE TABLE log (
  generation INTEGER NOT NULL, graph TEXT NOT NULL, owner TEXT NOT NULL, before TEXT, after TEXT, at TEXT NOT NULL,
  PRIMARY KEY (generation, graph)
) WITHOUT ROWID;
INSERT INTO "log" VALUES(1,'https://kg.example/id/domain/a','user',NULL,'5f3ab87a4021548e8f6ec59931bbc0c5','2026-11-27T12:00:01+00:00');
INSERT INTO "log" VALUES(1,'https://kg.example/id/domain/b','kubernetes:prod',NULL,'2ba282de774620b320702bccead1daf0','2026-11-27T12:00:01+00:00');
INSERT INTO "log" VALUES(1,'https://kg.example/id/domain/c','user',NULL,'8dde57bbbc45d055e0f14431d547a7d5','2026-11-27T12:00:01+00:00');
INSERT INTO "log" VALUES(2,'https://kg.example/id/domain/a','user','5f3ab87a4021548e8f6ec59931bbc0c5','5b48df2ae49da399877b176500ab51a6','2026-11-27T12:00:02+00:00');
INSERT INTO "log" VALUES(3,'https://kg.example/id/domain/d','user',NULL,'48c00d607933c5708512a72ace65089d','2026-11-27T12:00:03+00:00');
INSERT INTO "log" VALUES(4,'https://kg.example/id/domain/c','user','8dde57bbbc45d055e0f14431d547a7d5',NULL,'2026-11-27T12:00:04+00:00');
CREATE TABLE settled (generation INTEGER NOT NULL);
INSERT INTO "settled" VALUES(4);
COMMIT;
