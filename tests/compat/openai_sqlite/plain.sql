BEGIN TRANSACTION;
CREATE TABLE agent_messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_data TEXT NOT NULL,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id)
                    ON DELETE CASCADE
            );
INSERT INTO "agent_messages" VALUES(1,'alice/1','{"content": "shell", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(2,'alice/1','{"arguments": "{\"word\": \"shell\"}", "call_id": "call-1", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(3,'alice/1','{"call_id": "call-1", "output": "SHELL", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(4,'alice/1','{"id": "msg", "content": [{"annotations": [], "text": "found: SHELL", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(5,'alice/1','{"content": "rock", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(6,'alice/1','{"arguments": "{\"word\": \"rock\"}", "call_id": "call-2", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(7,'alice/1','{"call_id": "call-2", "output": "ROCK", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(8,'alice/1','{"id": "msg", "content": [{"annotations": [], "text": "found: ROCK", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(9,'bob/1','{"content": "tide", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(10,'bob/1','{"arguments": "{\"word\": \"tide\"}", "call_id": "call-1", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(11,'bob/1','{"call_id": "call-1", "output": "TIDE", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(12,'bob/1','{"id": "msg", "content": [{"annotations": [], "text": "found: TIDE", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
CREATE TABLE agent_sessions (
                session_id TEXT PRIMARY KEY,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "agent_sessions" VALUES('alice/1','2026-11-18 03:58:47','2026-11-18 03:58:47');
INSERT INTO "agent_sessions" VALUES('bob/1','2026-11-18 03:58:47','2026-11-18 03:58:47');
CREATE INDEX idx_agent_messages_session_id
            ON agent_messages (session_id, id)
        ;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('agent_messages',12);
COMMIT;
